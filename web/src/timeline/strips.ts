// What lies one after the other in a row of the picture: the spans of a lane, or a thread's waits.
//
// A strip is a few typed arrays, never an object a span. What overlaps at one depth (a call that goes
// on while the next one begins) is laid into strips of its own, so that nothing covers anything.

import type { NumberColumn } from "../data/blocks";
import type { Spans } from "../data/spans";

export interface Strip {
  rows: Uint32Array; // of the block that they are from
  start: Float64Array; // ascending
  end: Float64Array;
  reach: Float64Array; // the latest end up to here: `end` itself where nothing overlaps
  codes: NumberColumn; // what the palette gives a colour
}

// More overlapping spans than this share the last strip.
const MOST_OVERLAPS = 16;

export function strip(rows: Uint32Array, start: Float64Array, end: Float64Array, codes: NumberColumn): Strip {
  return { rows, start, end, reach: reachOf(end), codes };
}

function reachOf(end: Float64Array): Float64Array {
  let latest = -Infinity;
  for (const one of end) {
    if (one < latest) return runningMaximum(end);
    latest = one;
  }
  return end;
}

function runningMaximum(end: Float64Array): Float64Array {
  const reach = end.slice();
  for (let at = 1; at < reach.length; at++) if (reach[at]! < reach[at - 1]!) reach[at] = reach[at - 1]!;
  return reach;
}

// The first place, from `low` on, whose value is at least `time`.
export function firstAtLeast(values: Float64Array, time: number, low = 0): number {
  let step = 1;
  let high = low;
  while (high < values.length && values[high]! < time) {
    low = high + 1;
    high += step;
    step <<= 1;
  }
  high = Math.min(high, values.length);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// The place in a strip of what is drawn between two moments that are less than a pixel apart; -1: nothing.
export function placeAt(of: Strip, from: number, to: number): number {
  const middle = (from + to) / 2;
  let found = -1;
  for (let at = firstAtLeast(of.reach, from); at < of.start.length && of.start[at]! < to; at++) {
    if (of.start[at]! <= middle && of.end[at]! >= middle) return at;
    if (found < 0 && of.end[at]! >= from) found = at;
    if (at > 1e5 && found >= 0) break;
  }
  return found;
}

// The place of a row in a strip; -1: it is in another one.
export function placeOf(of: Strip, row: number, start: number): number {
  for (let at = firstAtLeast(of.start, start); at < of.start.length && of.start[at] === start; at++) {
    if (of.rows[at] === row) return at;
  }
  return -1;
}

// Those of a strip that a test keeps; null: none.
export function kept(of: Strip, test: (row: number) => boolean): Strip | null {
  let count = 0;
  for (const row of of.rows) if (test(row)) count++;
  if (!count) return null;
  if (count === of.rows.length) return of;
  const places = new Uint32Array(count);
  let filled = 0;
  of.rows.forEach((row, at) => test(row) && (places[filled++] = at));
  return taken(of, places);
}

// What stands at some places of a strip.
function taken({ rows, start, end, codes }: Omit<Strip, "reach">, places: Uint32Array): Strip {
  const of = <T extends NumberColumn | Uint32Array>(empty: T, values: T): T => {
    for (let at = 0; at < places.length; at++) empty[at] = values[places[at]!]!;
    return empty;
  };
  const [from, to] = [of(new Float64Array(places.length), start), of(new Float64Array(places.length), end)];
  return strip(of(new Uint32Array(places.length), rows), from, to, of(codes.slice(0, places.length), codes));
}

// The strips of a lane: one, but for where spans overlap.
export function stripsOf({ rows, start, end, codes }: Omit<Strip, "reach">): Strip[] {
  const whole = strip(rows, start, end, codes);
  if (!overlaps(whole)) return [whole];
  const ends: number[] = [];
  const levels = Uint8Array.from(start, (from, at) => levelOf(ends, from, end[at]!));
  return ends.map((_, level) => {
    return taken(whole, Uint32Array.from(rows.keys()).filter(at => levels[at] === level));
  });
}

function overlaps({ start, reach }: Strip): boolean {
  for (let at = 1; at < start.length; at++) if (start[at]! < reach[at - 1]!) return true;
  return false;
}

function levelOf(ends: number[], from: number, to: number): number {
  let level = ends.findIndex(end => end <= from);
  if (level < 0) level = ends.length < MOST_OVERLAPS ? ends.push(to) - 1 : MOST_OVERLAPS - 1;
  ends[level] = Math.max(ends[level]!, to);
  return level;
}

export interface LayerStrips {
  layer: number;
  strips: Strip[];
}

// The strips of a track with its layers apart: of each layer by the depth within that layer.
export function stripsByLayer(spans: Spans, track: number, depths: Uint16Array): LayerStrips[] {
  const [from, to] = spans.range(track);
  const found: LayerStrips[] = [];
  spans.about.layers.forEach((_, layer) => {
    const byDepth: number[][] = [];
    for (let row = from; row < to; row++) {
      if (spans.about.classes[spans.cls[row]!]![2] === layer) (byDepth[depths[row]!] ??= []).push(row);
    }
    const strips = byDepth.filter(Boolean).flatMap(rows => stripsOf(stripOf(spans, Uint32Array.from(rows))));
    if (strips.length) found.push({ layer, strips });
  });
  return found;
}

function stripOf(spans: Spans, rows: Uint32Array): Omit<Strip, "reach"> {
  const start = new Float64Array(rows.length);
  const end = new Float64Array(rows.length);
  const codes = spans.cls.slice(0, rows.length);
  for (let at = 0; at < rows.length; at++) {
    const row = rows[at]!;
    start[at] = spans.start[row]!;
    end[at] = spans.start[row]! + spans.dur[row]!;
    codes[at] = spans.cls[row]!;
  }
  return { rows, start, end, codes };
}

// How many spans of its own layer each span lies in.
export function depthsInLayer(spans: Spans): Uint16Array {
  const depths = new Uint16Array(spans.count);
  const { parent } = spans;
  for (let row = 0; row < spans.count; row++) {
    const layer = spans.classOf(row)[2];
    let around = parent[row]!;
    while (around >= 0 && spans.classOf(around)[2] !== layer) around = parent[around]!;
    if (around >= 0) depths[row] = depths[around]! + 1;
  }
  return depths;
}
