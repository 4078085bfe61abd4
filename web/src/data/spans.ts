// All spans, by track and start, and what follows from their order: parents and self times
// (analyse/self_times.py says how).

import type { NumberColumn } from "./blocks";
import type { Recording } from "./recording";

// [name, kind, layer, module, line] as numbers; -1: it has none.
export type SpanClass = [number, number, number, number, number];

// What the page knows of all spans (analyse/ordered_spans.py).
export interface SpanAbout {
  tracks: number[];
  begins: number[]; // the first row of each track
  classes: SpanClass[];
  names: string[];
  lines: string[];
  kinds: string[];
  layers: string[];
  phases: string[];
  unfinished: number[];
  is_thinned: boolean;
}

interface About extends SpanAbout {
  self_exceptions: [number, number][];
}

// The spans of one track at one depth, by start.
export interface Lane {
  rows: Uint32Array;
  start: Float64Array;
  end: Float64Array;
  codes: NumberColumn; // classes
}

export class Spans {
  readonly count: number;
  readonly start: Float64Array;
  readonly dur: NumberColumn;
  readonly cls: NumberColumn;
  readonly depth: NumberColumn;
  readonly step: NumberColumn; // 1 + the step; 0: none
  readonly unfinished: ReadonlySet<number>;
  readonly end_ns: number;
  private readonly placeOfTrack: ReadonlyMap<number, number>;
  private nested: Nested | null = null; // made when it is asked for: the first picture needs none of it

  constructor(
    readonly about: About,
    columns: Record<string, NumberColumn>,
  ) {
    this.placeOfTrack = new Map(about.tracks.map((track, at) => [track, at]));
    this.dur = columns["dur"]!;
    this.cls = columns["class"]!;
    this.depth = columns["depth"]!;
    this.step = columns["step"]!;
    this.count = this.dur.length;
    this.start = this.starts(columns["start"]!);
    this.unfinished = new Set(about.unfinished);
    this.end_ns = lastEnd(this.start, this.dur);
  }

  // The row of the span around each; -1: none.
  get parent(): Int32Array {
    return this.nest().parent;
  }

  get self(): Float64Array {
    return this.nest().self;
  }

  // The first row of a track, and the one behind its last.
  range(track: number): [number, number] {
    const at = this.placeOfTrack.get(track);
    if (at === undefined) return [0, 0];
    return [this.about.begins[at]!, this.about.begins[at + 1] ?? this.count];
  }

  trackOf(row: number): number {
    const { begins, tracks } = this.about;
    let low = 0;
    let high = begins.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (begins[middle]! <= row) low = middle;
      else high = middle;
    }
    return tracks[low]!;
  }

  classOf(row: number): SpanClass {
    return this.about.classes[this.cls[row]!]!;
  }

  name(row: number): string {
    return this.about.names[this.classOf(row)[0]]!;
  }

  // The lanes of a track, from the outermost in.
  lanes(track: number): Lane[] {
    const [from, to] = this.range(track);
    const { start, dur, cls, depth } = this;
    const counts: number[] = [];
    for (let row = from; row < to; row++) counts[depth[row]!] = (counts[depth[row]!] ?? 0) + 1;
    const lanes = counts.map(count => emptyLane(count, cls.slice(0, count)));
    const filled = counts.map(() => 0);
    for (let row = from; row < to; row++) {
      const level = depth[row]!;
      const lane = lanes[level]!;
      const at = filled[level]!++;
      const begin = start[row]!;
      lane.rows[at] = row;
      lane.codes[at] = cls[row]!;
      lane.start[at] = begin;
      lane.end[at] = begin + dur[row]!;
    }
    return lanes.filter(Boolean);
  }

  private starts(differences: NumberColumn): Float64Array {
    const start = new Float64Array(this.count);
    const { begins } = this.about;
    begins.forEach((from, at) => {
      const to = begins[at + 1] ?? this.count;
      let sum = 0;
      for (let row = from; row < to; row++) start[row] = sum += differences[row]!;
    });
    return start;
  }

  private nest(): Nested {
    if (this.nested) return this.nested;
    const { begins, classes, self_exceptions } = this.about;
    const nested = { parent: new Int32Array(this.count).fill(-1), self: new Float64Array(this.dur) };
    const layers = Int32Array.from(classes, one => one[2]);
    begins.forEach((from, at) => this.nestTrack(nested, from, begins[at + 1] ?? this.count, layers));
    for (const [row, self] of self_exceptions) nested.self[row] = self;
    this.nested = nested;
    return nested;
  }

  private nestTrack({ parent, self }: Nested, from: number, to: number, layers: Int32Array): void {
    const { start, dur, cls, depth } = this;
    const open: number[] = []; // by depth, the last row there
    for (let row = from; row < to; row++) {
      const level = depth[row]!;
      const last = level ? open[level - 1] : undefined;
      if (last !== undefined && start[last]! + dur[last]! >= start[row]!) parent[row] = last;
      open[level] = row;
      const layer = layers[cls[row]!];
      let around = parent[row]!;
      while (around >= 0 && layers[cls[around]!] !== layer) around = parent[around]!;
      if (around >= 0) self[around]! -= dur[row]!;
    }
  }
}

interface Nested {
  parent: Int32Array;
  self: Float64Array;
}

function lastEnd(start: Float64Array, dur: NumberColumn): number {
  let end = 0;
  for (let row = 0; row < start.length; row++) end = Math.max(end, start[row]! + dur[row]!);
  return end;
}

function emptyLane(count: number, codes: NumberColumn): Lane {
  return {
    codes,
    rows: new Uint32Array(count),
    start: new Float64Array(count),
    end: new Float64Array(count),
  };
}

const known = new WeakMap<Recording, Promise<Spans>>();

// The spans of a recording, read once.
export function spansOf(recording: Recording): Promise<Spans> {
  let asked = known.get(recording);
  if (!asked) {
    asked = Promise.all([recording.json<About>("span_classes"), recording.columns("spans")]).then(
      ([about, columns]) => new Spans(about, columns),
    );
    known.set(recording, asked);
  }
  return asked;
}
