// Answers about spans, of which the page has all.

import { signal } from "@preact/signals";
import { firstAtLeast, kept, placeOf, type Strip, stripsByLayer, stripsOf, depthsInLayer } from "../timeline/strips";
import { type Details, storyOf } from "../timeline/one_span";
import { type Filter, isEverything, type Lane, MOST_SHOWN, type OneSpan, type ShownSpans, type SpanStore, type Story } from "./span_store";
import type { Spans } from "./spans";
import { firstAt, type GroupBy, statistics, type StatisticsRow } from "./statistics";

interface WholeLane extends Lane {
  strip: Strip;
}

type Test = (row: number) => boolean;

export class WholeSpans implements SpanStore {
  readonly answers = signal(0);
  readonly problem = signal("");
  readonly pictures = signal(0);
  readonly counts: Uint32Array;
  readonly first_ns: number;
  private details: Details | null = null;
  private told: Story | undefined; // of the span that was asked about last
  private readonly ofTrack = new Map<number, WholeLane[]>();
  private readonly apartOfTrack = new Map<number, WholeLane[]>();
  private depths: Uint16Array | null = null;
  private laneCount = 0;
  private keeps: Test | null = null;
  private classes: Uint8Array | null = null; // that the search has found
  private keptOf = new WeakMap<Strip, Strip | "none">();
  private foundOf = new WeakMap<Strip, Strip | "none">();

  constructor(readonly spans: Spans) {
    this.counts = new Uint32Array(spans.about.classes.length);
    for (let row = 0; row < spans.count; row++) this.counts[spans.cls[row]!]!++;
    this.first_ns = spans.about.begins.reduce((least, begin) => Math.min(least, spans.start[begin]!), Infinity);
  }

  get about() {
    return this.spans.about;
  }

  get count(): number {
    return this.spans.count;
  }

  get end_ns(): number {
    return this.spans.end_ns;
  }

  // What is read after the first picture.
  know(details: Details): void {
    this.details = details;
    this.told = undefined;
    this.answers.value++;
  }

  name(row: number): string {
    return this.spans.name(row);
  }

  size(track: number): number {
    const [from, to] = this.spans.range(track);
    return to - from;
  }

  isUnfinished(row: number): boolean {
    return this.spans.unfinished.has(row);
  }

  lanes(track: number): readonly WholeLane[] {
    let found = this.ofTrack.get(track);
    if (!found) {
      const strips = this.spans.lanes(track).flatMap(lane => stripsOf(lane));
      found = strips.map(strip => this.lane(track, -1, strip));
      this.ofTrack.set(track, found);
    }
    return found;
  }

  lanesApart(track: number): readonly WholeLane[] {
    let found = this.apartOfTrack.get(track);
    if (!found) {
      this.depths ??= depthsInLayer(this.spans);
      found = stripsByLayer(this.spans, track, this.depths).flatMap(({ layer, strips }) => strips.map(strip => this.lane(track, layer, strip)));
      this.apartOfTrack.set(track, found);
    }
    return found;
  }

  private lane(track: number, layer: number, strip: Strip): WholeLane {
    return { id: this.laneCount++, track, layer, count: strip.rows.length, strip };
  }

  placeIn(lane: Lane, { track, row, start }: OneSpan): number {
    return lane.track === track ? placeOf((lane as WholeLane).strip, row, start) : -1;
  }

  emphasise(filter: Filter, found: Uint8Array | null): void {
    this.keeps = testOf(this.spans, filter);
    this.classes = found;
    this.keptOf = new WeakMap();
    this.foundOf = new WeakMap();
  }

  see(): void {}

  drawn(lane: Lane): Strip {
    return (lane as WholeLane).strip;
  }

  kept(lane: Lane): Strip | null {
    return this.keeps && remembered(this.keptOf, this.drawn(lane), this.keeps);
  }

  found(lane: Lane): Strip | null {
    const { classes, keeps, spans } = this;
    return classes && remembered(this.foundOf, this.drawn(lane), row => classes[spans.cls[row]!] === 1 && (!keeps || keeps(row)));
  }

  known(row: number): OneSpan | undefined {
    const { spans } = this;
    if (row < 0 || row >= spans.count) return undefined;
    return { row, track: spans.trackOf(row), start: spans.start[row]!, dur: spans.dur[row]!, self: spans.self[row]!, cls: spans.cls[row]!, step: spans.step[row]! };
  }

  async span(row: number): Promise<OneSpan> {
    const found = this.known(row);
    if (!found) throw new Error(`there is no span ${row}`);
    return found;
  }

  story(row: number): Story | undefined {
    if (!this.known(row)) return undefined;
    if (this.told?.span.row !== row) this.told = storyOf(this.spans, this.details, one => this.known(one)!, row);
    return this.told;
  }

  statistics(filter: Filter, from: number, to: number, by: GroupBy): readonly StatisticsRow[] {
    return statistics(this.spans, { from, to, ...filter }, by);
  }

  shown(filter: Filter, from: number, to: number): ShownSpans {
    const rows = overlapping(this.spans, filter, from, to);
    rows.sort((a, b) => this.spans.self[b]! - this.spans.self[a]! || a - b);
    return { all: rows.length, spans: Array.from(rows.subarray(0, MOST_SHOWN), row => this.known(row)!) };
  }

  private of(lane: Lane, place: number): OneSpan | null {
    const row = this.drawn(lane).rows[place];
    return row === undefined ? null : this.known(row)!;
  }

  async at(lane: Lane, place: number): Promise<OneSpan | null> {
    return this.of(lane, place);
  }

  async reaching(lane: Lane, time: number): Promise<OneSpan | null> {
    return this.of(lane, firstAtLeast(this.drawn(lane).reach, time));
  }

  async before(lane: Lane, time: number): Promise<OneSpan | null> {
    return this.of(lane, firstAtLeast(this.drawn(lane).start, time) - 1);
  }

  async hit(start: number, row: number, direction: 1 | -1): Promise<OneSpan | null> {
    const found = this.hitBeyond(start, row, direction);
    // After the last one comes the first.
    const first = found >= 0 ? found : direction > 0 ? this.hitBeyond(-Infinity, -1, 1) : this.hitBeyond(Infinity, this.count, -1);
    return first < 0 ? null : this.known(first)!;
  }

  private hitBeyond(start: number, row: number, direction: 1 | -1): number {
    const { spans } = this;
    const compared = (a: number, b: number) => spans.start[a]! - spans.start[b]! || a - b;
    let best = -1;
    for (const track of spans.about.tracks) {
      for (const lane of this.lanes(track)) {
        const hits = this.found(lane);
        const one = hits ? beyond(hits, start, row, direction) : -1;
        if (one >= 0 && (best < 0 || compared(one, best) * direction < 0)) best = one;
      }
    }
    return best;
  }

  async ofSameName(row: number, direction: 1 | -1): Promise<OneSpan | null> {
    const { spans } = this;
    const [name, , layer] = spans.classOf(row);
    for (let at = row + direction; at >= 0 && at < spans.count; at += direction) {
      const of = spans.classOf(at);
      if (of[0] === name && of[2] === layer) return this.known(at)!;
    }
    return null;
  }
}

// The hit behind a moment and a row, or before them; -1: there is none.
function beyond(hits: Strip, start: number, row: number, direction: 1 | -1): number {
  let at = firstAtLeast(hits.start, start);
  if (direction > 0) while (at < hits.rows.length && hits.start[at] === start && hits.rows[at]! <= row) at++;
  else {
    while (at < hits.rows.length && hits.start[at] === start && hits.rows[at]! < row) at++;
    at--;
  }
  return at >= 0 && at < hits.rows.length ? hits.rows[at]! : -1;
}

function remembered(known: WeakMap<Strip, Strip | "none">, strip: Strip, test: Test): Strip | null {
  let found = known.get(strip);
  if (!found) {
    found = kept(strip, test) ?? "none";
    known.set(strip, found);
  }
  return found === "none" ? null : found;
}

// Which spans a filter keeps; null: all.
function testOf(spans: Spans, filter: Filter): Test | null {
  if (isEverything(filter)) return null;
  const { classes, steps } = filter;
  const tracks = filter.tracks && new Set(filter.tracks);
  return row => {
    if (classes && classes[spans.cls[row]!] === 0) return false;
    if (steps && (spans.step[row]! <= steps[0] || spans.step[row]! > steps[1])) return false;
    return !tracks || tracks.has(spans.trackOf(row));
  };
}

// The spans that a filter keeps and of which any part lies in a stretch.
function overlapping(spans: Spans, filter: Filter, from: number, to: number): Uint32Array {
  const test = testOf(spans, { ...filter, tracks: null });
  const found = new Uint32Array(spans.count);
  let filled = 0;
  for (const track of filter.tracks ?? spans.about.tracks) {
    const [first, last] = spans.range(track);
    const end = firstAt(spans.start, first, last, to);
    for (let row = first; row < end; row++) if (spans.start[row]! + spans.dur[row]! >= from && (!test || test(row))) found[filled++] = row;
  }
  return found.slice(0, filled);
}
