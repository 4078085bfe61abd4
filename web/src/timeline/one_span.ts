// Everything that is known of one span.

import type { NumberColumn } from "../data/blocks";
import type { Recording } from "../data/recording";
import type { Spans } from "../data/spans";
import { placeOfPart } from "../data/statistics";
import type { Tracks } from "../data/tracks";
import { Links, linksOf } from "./links";

// What is read when the first span is chosen.
export class Details {
  private readonly texts: Map<number, string>;

  constructor(
    private readonly columns: Record<string, NumberColumn>,
    args: { keys: number[]; texts: string[] },
    readonly links: Links,
  ) {
    this.texts = new Map(args.keys.map((key, at) => [key, args.texts[at]]));
  }

  phase(spans: Spans, row: number): string {
    const phase = this.columns["phase"][row];
    return phase ? spans.about.phases[phase - 1] : "";
  }

  weight(row: number): number {
    return this.columns["weight"][row];
  }

  // Its arguments by their names; what is no object has none.
  args(row: number): [string, string][] {
    const text = this.texts.get(this.columns["args"][row] - 1);
    if (text === undefined) return [];
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [["arguments", asText(value)]];
    return Object.entries(value).map(([key, one]) => [key, asText(one)]);
  }
}

const asText = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

export async function detailsOf(recording: Recording): Promise<Details> {
  const [columns, args, links] = await Promise.all([
    recording.columns("span_details"),
    recording.json<{ keys: number[]; texts: string[] }>("args"),
    linksOf(recording),
  ]);
  return new Details(columns, args, links);
}

// The spans around one, the outermost first.
export function ancestors(spans: Spans, row: number): number[] {
  const found: number[] = [];
  for (let above = spans.parent[row]; above >= 0; above = spans.parent[above]) found.unshift(above);
  return found;
}

// The spans directly below one.
export function children(spans: Spans, row: number): number[] {
  const [, last] = spans.range(spans.trackOf(row));
  const end = spans.start[row] + spans.dur[row];
  const found: number[] = [];
  for (let at = row + 1; at < last && spans.start[at] <= end; at++) if (spans.parent[at] === row) found.push(at);
  return found;
}

export interface NameSum {
  name: string;
  layer: number;
  count: number;
  total_ns: number;
  first: number; // a row
}

// The spans by name, most time first.
export function byName(spans: Spans, rows: readonly number[]): NameSum[] {
  const sums = new Map<string, NameSum>();
  for (const row of rows) {
    const [name, , layer] = spans.classOf(row);
    const key = `${name} ${layer}`;
    const sum = sums.get(key) ?? { name: spans.about.names[name], layer, count: 0, total_ns: 0, first: row };
    sum.count++;
    sum.total_ns += spans.dur[row];
    sums.set(key, sum);
  }
  return [...sums.values()].sort((a, b) => b.total_ns - a.total_ns);
}

export interface SameName {
  place: number; // of the span among them, from 1
  count: number;
  total_ns: number;
  self_ns: number;
  min_ns: number;
  p50_ns: number;
  p99_ns: number;
  max_ns: number;
}

// All spans of the same name and layer.
export function sameName(spans: Spans, row: number): SameName {
  const [name, , layer] = spans.classOf(row);
  const isSame = Uint8Array.from(spans.about.classes, of => (of[0] === name && of[2] === layer ? 1 : 0));
  const durations: number[] = [];
  let place = 0;
  let self = 0;
  let total = 0;
  for (let at = 0; at < spans.count; at++) {
    if (!isSame[spans.cls[at]]) continue;
    durations.push(spans.dur[at]);
    total += spans.dur[at];
    self += spans.self[at];
    if (at <= row) place++;
  }
  const ordered = Float64Array.from(durations).sort();
  const ranked = (part: number) => ordered[placeOfPart(part, ordered.length)];
  return { place, count: ordered.length, total_ns: total, self_ns: self, min_ns: ordered[0], p50_ns: ranked(0.5), p99_ns: ranked(0.99), max_ns: ordered.at(-1)! };
}

// Its kind in words, where that says more than its layer.
export function kindOf(spans: Spans, row: number): string {
  const [, kind, layer] = spans.classOf(row);
  return `${spans.about.layers[layer]}, ${spans.about.kinds[kind]}`;
}

export function lineOf(spans: Spans, row: number): string {
  const line = spans.classOf(row)[4];
  return line < 0 ? "" : spans.about.lines[line];
}

export function moduleOf(spans: Spans, tracks: Tracks, row: number): [string, string] {
  const module = spans.classOf(row)[3];
  return [tracks.modulePath.get(module) ?? "", tracks.moduleClass.get(module) ?? ""];
}
