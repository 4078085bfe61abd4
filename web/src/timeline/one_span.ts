// Everything of one span, where the page has all of them (analyse/timeline/one_span.py has it where the server
// does).

import type { NumberColumn } from "../data/blocks";
import type { Recording } from "../data/recording";
import { MOST, MOST_AROUND, MOST_LINKS, type NameSum, type OneSpan, type SameName, type Story } from "../data/span_store";
import type { Spans } from "../data/spans";
import { placeOfPart } from "../data/statistics";
import { type Link, type Links, linksOf } from "./links";

// What is read when the first span is chosen.
export class Details {
  constructor(
    private readonly columns: Record<string, NumberColumn>,
    readonly links: Links,
  ) {}

  phase(spans: Spans, row: number): string {
    const phase = this.columns["phase"][row];
    return phase ? spans.about.phases[phase - 1] : "";
  }

  weight(row: number): number {
    return this.columns["weight"][row];
  }

  // The key of its arguments; -1: none.
  args(row: number): number {
    return this.columns["args"][row] - 1;
  }
}

export async function detailsOf(recording: Recording): Promise<Details> {
  const [columns, links] = await Promise.all([recording.columns("span_details"), linksOf(recording)]);
  return new Details(columns, links);
}

// The spans around one, the outermost first.
function ancestors(spans: Spans, row: number): number[] {
  const found: number[] = [];
  for (let above = spans.parent[row]; above >= 0; above = spans.parent[above]) found.unshift(above);
  return found;
}

// The spans directly below one.
function children(spans: Spans, row: number): number[] {
  const [, last] = spans.range(spans.trackOf(row));
  const end = spans.start[row] + spans.dur[row];
  const found: number[] = [];
  for (let at = row + 1; at < last && spans.start[at] <= end; at++) if (spans.parent[at] === row) found.push(at);
  return found;
}

// The spans by name, most time first.
function byName(spans: Spans, rows: readonly number[], one: (row: number) => OneSpan): NameSum[] {
  const sums = new Map<string, NameSum>();
  for (const row of rows) {
    const [name, , layer] = spans.classOf(row);
    const key = `${name} ${layer}`;
    const sum = sums.get(key) ?? { name: spans.about.names[name], layer, count: 0, total_ns: 0, first: one(row) };
    sum.count++;
    sum.total_ns += spans.dur[row];
    sums.set(key, sum);
  }
  return [...sums.values()].sort((a, b) => b.total_ns - a.total_ns);
}

// All spans of the same name and layer.
function sameName(spans: Spans, row: number): SameName {
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

const PRIMITIVE_LINK = "operator_primitive";

// Everything of a span; without details what follows from the order of all spans.
export function storyOf(spans: Spans, details: Details | null, one: (row: number) => OneSpan, row: number): Story {
  const around = ancestors(spans, row);
  const below = children(spans, row);
  const layer = spans.about.layers.indexOf("primitives");
  const isPrimitive = (at: number) => spans.classOf(at)[2] === layer;
  const links = details?.links.of(row) ?? [];
  const isAskedFor = (link: Link) => link.kind === PRIMITIVE_LINK && link.from === row;
  // Its primitives lie below it; those of another thread are linked.
  const primitives = [...new Set([...below.filter(isPrimitive), ...links.filter(isAskedFor).map(link => link.to)])];
  const partners = links.filter(link => !isAskedFor(link));
  const sums = byName(spans, below.filter(at => !isPrimitive(at)), one);
  const told = ({ from, to, kind }: Link) => ({ kind, isFrom: from === row, other: one(from === row ? to : from) });
  return {
    span: one(row),
    phase: details?.phase(spans, row) ?? "",
    weight: details?.weight(row) ?? 1,
    args: details?.args(row) ?? -1,
    around: around.slice(-MOST_AROUND).map(one),
    aroundCount: around.length,
    below: sums.slice(0, MOST),
    belowCount: sums.length,
    primitives: primitives.slice(0, MOST).map(at => ({ span: one(at), args: details?.args(at) ?? -1 })),
    primitiveCount: primitives.length,
    links: links.slice(0, MOST_LINKS).map(told),
    partners: partners.slice(0, MOST).map(told),
    partnerCount: partners.length,
    same: sameName(spans, row),
  };
}
