// Links between spans, both ways: a forward operator and its backward function, a submission and what
// was submitted, an operator and its primitives.

import type { NumberColumn } from "../data/blocks";
import type { Recording } from "../data/recording";

export interface Link {
  from: number; // rows of spans
  to: number;
  kind: string;
}

export class Links {
  private readonly byTo: Uint32Array; // places, by where they lead

  constructor(
    private readonly from: NumberColumn,
    private readonly to: NumberColumn,
    private readonly kind: NumberColumn,
    private readonly kinds: readonly string[],
  ) {
    this.byTo = Uint32Array.from(to.keys()).sort((a, b) => to[a] - to[b] || a - b);
  }

  // All links of a span.
  of(row: number): Link[] {
    const found: Link[] = [];
    for (let at = lowest(this.from.length, place => this.from[place] < row); this.from[at] === row; at++) found.push(this.link(at));
    for (let at = lowest(this.byTo.length, place => this.to[this.byTo[place]] < row); this.to[this.byTo[at]] === row; at++) {
      found.push(this.link(this.byTo[at]));
    }
    return found;
  }

  private link(at: number): Link {
    return { from: this.from[at], to: this.to[at], kind: this.kinds[this.kind[at]] };
  }
}

function lowest(count: number, isBelow: (place: number) => boolean): number {
  let [low, high] = [0, count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (isBelow(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

export async function linksOf(recording: Recording): Promise<Links> {
  const [columns, kinds] = await Promise.all([recording.columns("links"), recording.json<string[]>("link_kinds")]);
  // What a link leads to is written as the distance from where it begins.
  const to = Float64Array.from(columns["to"], (distance, at) => distance + columns["from"][at]);
  return new Links(columns["from"], to, columns["kind"], kinds);
}
