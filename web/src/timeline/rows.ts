// The rows of the picture: processes, their threads, the lanes of those, waits, counters.

import type { Lane, SpanStore } from "../data/span_store";
import type { Process, Track, Tracks } from "../data/tracks";
import { count, plural } from "../ui/format";
import type { Series } from "./counters";
import type { Strip } from "./strips";
import type { Waits } from "./waits";

export type RowKind = "process" | "thread" | "lane" | "waits" | "counters" | "counter";

export interface Row {
  key: string; // of what is opened, pinned and moved: `p0`, `t3`, `c0`; of a lane its thread's and its number
  kind: RowKind;
  label: string;
  title: string;
  process: number;
  track: number; // -1: none
  height: number; // CSS pixels
  lane: Lane | null; // its spans
  waits: Strip | null; // or its waits
  series: Series | null;
  isOpen: boolean | null; // null: there is nothing to open
  isPinned: boolean;
}

// How the user has arranged the rows.
export interface Arrangement {
  toggled: ReadonlySet<string>; // open what is closed at first, and the other way round
  pinned: ReadonlySet<string>;
  moved: ReadonlyMap<string, number>; // the place of what was moved, between those of its neighbours
  words: string;
  isApart: boolean;
}

export interface Layout {
  rows: Row[]; // first the pinned ones
  tops: Float64Array; // of each row, in its part; then the height of the part below
  pinnedCount: number;
  pinnedHeight: number;
  height: number; // of those below the pinned ones
  hidden: number; // threads that the words leave out
}

const HEIGHTS: Record<RowKind, number> = { process: 24, thread: 18, lane: 18, waits: 12, counters: 18, counter: 38 };

export class RowModel {
  readonly empty: number; // threads with neither spans nor waits
  private readonly threads = new Map<number, Track[]>();

  constructor(
    readonly spans: SpanStore,
    readonly tracks: Tracks,
    readonly waits: Waits | null,
    readonly series: readonly Series[],
  ) {
    const filled = new Set([...spans.about.tracks, ...(waits?.tracks ?? [])]);
    let empty = 0;
    for (const track of tracks.tracks) {
      if (track.kind === "counter") continue;
      if (!filled.has(track.track)) empty++;
      else if (this.threads.has(track.process)) this.threads.get(track.process)!.push(track);
      else this.threads.set(track.process, [track]);
    }
    this.empty = empty;
  }

  private byLayer(track: number): { label: string; lane: Lane }[] {
    const { layers } = this.spans.about;
    let last = -1;
    return this.spans.lanesApart(track).map(lane => {
      const label = lane.layer === last ? "" : (layers[lane.layer] ?? "");
      last = lane.layer;
      return { label, lane };
    });
  }

  layout(wanted: Arrangement): Layout {
    const words = wanted.words.toLowerCase().split(/\s+/).filter(Boolean);
    const pinned: Row[] = [];
    const rows: Row[] = [];
    let hidden = 0;
    const processes = inOrder(this.tracks.processes, wanted, one => `p${one.process}`);
    for (const process of processes) {
      const all = inOrder(this.threads.get(process.process) ?? [], wanted, one => `t${one.track}`);
      const threads = all.filter(one => matches(words, `${process.label} ${one.label} ${one.kind}`));
      hidden += all.length - threads.length;
      const series = this.series.filter(one => this.tracks.track(one.track)?.process === process.process);
      const counters = series.filter(one => matches(words, `${process.label} counters ${one.label}`));
      if (!threads.length && !counters.length) continue;
      const head = this.processRow(process, all, wanted);
      rows.push(head);
      for (const thread of threads) {
        const isPinned = wanted.pinned.has(`t${thread.track}`);
        if (isPinned) pinned.push(...this.threadRows(thread, wanted, processes.length > 1 ? `${process.label} ` : ""));
        else if (head.isOpen) rows.push(...this.threadRows(thread, wanted, ""));
      }
      if (head.isOpen) rows.push(...this.counterRows(process, counters, wanted));
    }
    return placed(pinned, rows, hidden);
  }

  private processRow(process: Process, threads: Track[], wanted: Arrangement): Row {
    const key = `p${process.process}`;
    const isOpen = !wanted.toggled.has(key);
    const busiest = threads.reduce<Track | null>((most, one) => (most && this.size(most) >= this.size(one) ? most : one), null);
    const lane = !isOpen && busiest ? (this.spans.lanes(busiest.track)[0] ?? null) : null;
    const title = isOpen || !busiest ? plural(threads.length, "thread") : `the outermost spans of ${busiest.label}, of ${plural(threads.length, "thread")}`;
    return row("process", key, process.label, { title, process: process.process, lane, isOpen });
  }

  private size(track: Track): number {
    return this.spans.size(track.track);
  }

  private threadRows(thread: Track, wanted: Arrangement, prefix: string): Row[] {
    const key = `t${thread.track}`;
    const about = { process: thread.process, track: thread.track, isPinned: wanted.pinned.has(key) };
    const lanes = this.spans.lanes(thread.track);
    const waits = this.waits?.strips(thread.track) ?? [];
    if (!lanes.length) return this.waitingRows(thread, waits, about, prefix, wanted);
    const canOpen = lanes.length > 1 || waits.length > 0;
    const isOpen = canOpen ? !wanted.toggled.has(key) : null;
    const title = `${thread.label}: ${plural(this.size(thread), "span")}`;
    const isApart = wanted.isApart && isOpen !== false;
    const first = isApart ? null : lanes[0];
    const rows = [row("thread", key, prefix + thread.label, { ...about, title, lane: first, isOpen })];
    if (isOpen === false) return rows;
    const below = isApart ? this.byLayer(thread.track) : lanes.slice(1).map(lane => ({ label: "", lane }));
    below.forEach(({ label, lane }, at) => rows.push(row("lane", `${key} ${at + 1}`, label, { ...about, title, lane })));
    waits.forEach((strip, at) => rows.push(row("waits", `${key} w${at}`, at ? "" : "waits", { ...about, title: `waits of ${thread.label}`, waits: strip })));
    return rows;
  }

  // A thread without spans, as most workers are: its waits stand beside its name.
  private waitingRows(thread: Track, waits: Strip[], about: Partial<Row>, prefix: string, wanted: Arrangement): Row[] {
    const key = `t${thread.track}`;
    const isOpen = waits.length > 1 ? !wanted.toggled.has(key) : null;
    const more = { ...about, title: `waits of ${thread.label}, which has no spans` };
    const first = row("thread", key, `${prefix}${thread.label}: waits`, { ...more, waits: waits[0] ?? null, isOpen });
    const below = isOpen ? waits.slice(1) : [];
    return [first, ...below.map((strip, at) => row("waits", `${key} w${at + 1}`, "", { ...more, waits: strip }))];
  }

  private counterRows(process: Process, series: Series[], wanted: Arrangement): Row[] {
    if (!series.length) return [];
    const key = `c${process.process}`;
    const isOpen = wanted.toggled.has(key);
    const head = row("counters", key, `${count(series.length)} counters`, { process: process.process, title: "", isOpen });
    if (!isOpen) return [head];
    const lines = series.map(one => row("counter", `${key} ${one.label}`, one.label, { process: process.process, title: one.label, series: one }));
    return [head, ...lines];
  }
}

function row(kind: RowKind, key: string, label: string, more: Partial<Row>): Row {
  const none = { title: "", process: -1, track: -1, lane: null, waits: null, series: null, isOpen: null, isPinned: false };
  return { ...none, key, kind, label, height: HEIGHTS[kind], ...more };
}

function matches(words: string[], text: string): boolean {
  const lower = text.toLowerCase();
  return words.every(word => lower.includes(word));
}

// As they come, but for those that were moved.
function inOrder<T>(all: readonly T[], wanted: Arrangement, keyOf: (one: T) => string): T[] {
  if (!wanted.moved.size) return [...all];
  const place = new Map(all.map((one, at) => [one, wanted.moved.get(keyOf(one)) ?? at]));
  return [...all].sort((a, b) => place.get(a)! - place.get(b)!);
}

function placed(pinned: Row[], below: Row[], hidden: number): Layout {
  const rows = [...pinned, ...below];
  const tops = new Float64Array(rows.length + 1);
  let top = 0;
  let pinnedHeight = 0;
  rows.forEach((one, at) => {
    if (at === pinned.length) top = 0;
    tops[at] = top;
    top += one.height;
    if (at < pinned.length) pinnedHeight = top;
  });
  const height = below.length ? top : 0;
  tops[rows.length] = height;
  return { rows, tops, pinnedCount: pinned.length, pinnedHeight, height, hidden };
}

// The place of what is moved one up or down among those of its kind.
export function movedPlace(model: RowModel, wanted: Arrangement, key: string, by: -1 | 1): number | null {
  const siblings = siblingsOf(model, key);
  const places = siblings.map((one, at) => ({ one, place: wanted.moved.get(one) ?? at })).sort((a, b) => a.place - b.place);
  const now = places.findIndex(({ one }) => one === key);
  const next = places[now + by]?.place;
  if (now < 0 || next === undefined) return null;
  const beyond = places[now + 2 * by]?.place ?? next + 2 * by;
  return (next + beyond) / 2;
}

// The place just before another one of its kind (or behind it).
export function placeBeside(model: RowModel, wanted: Arrangement, key: string, other: string, isBehind: boolean): number | null {
  const siblings = siblingsOf(model, key);
  const places = siblings.filter(one => one !== key).map(one => ({ one, place: wanted.moved.get(one) ?? siblings.indexOf(one) }));
  places.sort((a, b) => a.place - b.place);
  const at = places.findIndex(({ one }) => one === other);
  if (at < 0) return null;
  const by = isBehind ? 1 : -1;
  const beyond = places[at + by]?.place ?? places[at]!.place + 2 * by;
  return (places[at]!.place + beyond) / 2;
}

function siblingsOf({ tracks, spans, waits }: RowModel, key: string): string[] {
  if (key.startsWith("p")) return tracks.processes.map(({ process }) => `p${process}`);
  const own = tracks.track(Number(key.slice(1)))?.process;
  const filled = new Set([...spans.about.tracks, ...(waits?.tracks ?? [])]);
  return tracks.tracks.filter(one => one.process === own && one.kind !== "counter" && filled.has(one.track)).map(({ track }) => `t${track}`);
}
