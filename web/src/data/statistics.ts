// Statistics of a selection: of the spans that start in a stretch of time, on some tracks, grouped.
//
// A span counts with its whole duration, so that stretches side by side add up to the whole.

import type { Spans } from "./spans";

export type GroupBy = "name" | "module" | "kind" | "layer" | "track";

export interface Selection {
  from: number; // ns, included
  to: number; // ns, not included
  tracks: readonly number[] | null; // null: all
  classes?: Uint8Array | null; // 1: counts; null: all
  steps?: readonly [number, number] | null; // [from, to); null: also outside of steps
}

export interface StatisticsRow {
  key: number; // of the name, module, kind, layer or track; -1: none
  layer: number; // of names: the same name in two layers is two rows
  count: number;
  total_ns: number;
  self_ns: number;
  min_ns: number;
  p50_ns: number;
  p99_ns: number;
  max_ns: number;
}

const FIELD: Record<Exclude<GroupBy, "track">, number> = { name: 0, kind: 1, layer: 2, module: 3 };

// The first row in [from, to) that starts at `time` or later.
export function firstAt(start: Float64Array, from: number, to: number, time: number): number {
  let low = from;
  let high = to;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (start[middle]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

// How much of what takes `ns` from `at` on lies in a stretch of time.
export function partInside([from, to]: readonly [number, number], at: number, ns: number): number {
  return Math.max(0, Math.min(at + ns, to) - Math.max(at, from));
}

// Rows that belong to a selection, as ranges [from, to).
export function rangesOf(spans: Spans, selection: Selection): [number, number][] {
  const tracks = selection.tracks ?? spans.about.tracks;
  return tracks.map(track => {
    const [from, to] = spans.range(track);
    return [firstAt(spans.start, from, to, selection.from), firstAt(spans.start, from, to, selection.to)];
  });
}

// Most self time first.
export function statistics(spans: Spans, selection: Selection, by: GroupBy): StatisticsRow[] {
  const ranges = rangesOf(spans, selection);
  const group = by === "track" ? null : groupsOfClasses(spans, FIELD[by]);
  const sums = new Sums(spans, group ? group.keys.length : ranges.length);
  const isKept = selection.classes || selection.steps ? keptRows(spans, ranges, selection) : null;
  ranges.forEach(([from, to], at) => {
    for (let row = from; row < to; row++) if (!isKept || isKept[row]) sums.add(group ? group.ofClass[spans.cls[row]!]! : at, row);
  });
  sums.percentiles(ranges, row => (group ? group.ofClass[spans.cls[row]!]! : -1), isKept);
  const tracks = selection.tracks ?? spans.about.tracks;
  const rows = sums.rows(at => (group ? group.keys[at]! : [tracks[at]!, -1]));
  return rows.sort((a, b) => b.self_ns - a.self_ns || a.key - b.key);
}

// By row whether it passes the filters of the selection; rows outside of the ranges do not count.
function keptRows(spans: Spans, ranges: readonly [number, number][], { classes, steps }: Selection): Uint8Array {
  const kept = new Uint8Array(spans.count);
  const ofClass = classes ?? new Uint8Array(spans.about.classes.length).fill(1);
  const [first, end] = steps ?? [-1, Infinity];
  for (const [from, to] of ranges) {
    for (let row = from; row < to; row++) {
      const step = spans.step[row]! - 1;
      kept[row] = step >= first && step < end ? ofClass[spans.cls[row]!]! : 0;
    }
  }
  return kept;
}

// Which group each class belongs to, and [key, layer] of each group.
function groupsOfClasses(spans: Spans, field: number): { ofClass: Int32Array; keys: [number, number][] } {
  const { classes } = spans.about;
  const numbers = new Map<string, number>();
  const keys: [number, number][] = [];
  const ofClass = Int32Array.from(classes, of => {
    const layer = field === FIELD.name ? of[2] : -1;
    const key = `${of[field]} ${layer}`;
    let number = numbers.get(key);
    if (number === undefined) {
      number = keys.push([of[field]!, layer]) - 1;
      numbers.set(key, number);
    }
    return number;
  });
  return { ofClass, keys };
}

class Sums {
  private readonly count: Uint32Array;
  private readonly total: Float64Array;
  private readonly self: Float64Array;
  private readonly selfOf: Float64Array; // of each span
  private readonly p50: Float64Array;
  private readonly p99: Float64Array;
  private readonly min: Float64Array;
  private readonly max: Float64Array;

  constructor(
    private readonly spans: Spans,
    groups: number,
  ) {
    this.count = new Uint32Array(groups);
    this.total = new Float64Array(groups);
    this.self = new Float64Array(groups);
    this.selfOf = spans.self;
    this.p50 = new Float64Array(groups);
    this.p99 = new Float64Array(groups);
    this.min = new Float64Array(groups).fill(Infinity);
    this.max = new Float64Array(groups);
  }

  add(group: number, row: number): void {
    const dur = this.spans.dur[row]!;
    this.count[group]!++;
    this.total[group]! += dur;
    this.self[group]! += this.selfOf[row]!;
    if (dur < this.min[group]!) this.min[group] = dur;
    if (dur > this.max[group]!) this.max[group] = dur;
  }

  // Half of the spans, and 99 % of them, take no longer. `groupOf` is -1 where a range is a group.
  percentiles(ranges: [number, number][], groupOf: (row: number) => number, isKept: Uint8Array | null): void {
    const begins = new Uint32Array(this.count.length + 1);
    for (let group = 0; group < this.count.length; group++) begins[group + 1] = begins[group]! + this.count[group]!;
    const durations = new Float64Array(begins[this.count.length]!);
    const next = begins.slice();
    ranges.forEach(([from, to], at) => {
      for (let row = from; row < to; row++) {
        if (isKept && !isKept[row]) continue;
        const of = groupOf(row);
        durations[next[of < 0 ? at : of]!++] = this.spans.dur[row]!;
      }
    });
    for (let group = 0; group < this.count.length; group++) {
      const own = durations.subarray(begins[group]!, begins[group + 1]!);
      this.p50[group] = ranked(own, 0.5);
      this.p99[group] = ranked(own, 0.99);
    }
  }

  rows(keyOf: (group: number) => [number, number]): StatisticsRow[] {
    const rows: StatisticsRow[] = [];
    this.count.forEach((count, group) => {
      if (!count) return;
      const [key, layer] = keyOf(group);
      rows.push({
        key,
        layer,
        count,
        total_ns: this.total[group]!,
        self_ns: this.self[group]!,
        min_ns: this.min[group]!,
        p50_ns: this.p50[group]!,
        p99_ns: this.p99[group]!,
        max_ns: this.max[group]!,
      });
    });
    return rows;
  }
}

// The smallest value that this part of all values do not exceed. It moves the values around, but need
// not sort them all.
function ranked(values: Float64Array, part: number): number {
  if (!values.length) return 0;
  const place = placeOfPart(part, values.length);
  let [low, high] = [0, values.length - 1];
  while (low < high) {
    const middle = values[(low + high) >> 1];
    let [left, right] = [low, high];
    while (left <= right) {
      while (values[left] < middle) left++;
      while (values[right] > middle) right--;
      if (left > right) break;
      const moved = values[left];
      values[left++] = values[right];
      values[right--] = moved;
    }
    if (place <= right) high = right;
    else if (place >= left) low = left;
    else break;
  }
  return values[place];
}

// In sorted values the place of the smallest one that this part of them do not exceed.
export function placeOfPart(part: number, count: number): number {
  return Math.max(0, Math.ceil(part * count) - 1);
}
