// The tree that is shown: the whole picture, or the callers and callees of one function.

import type { FlameData, Nodes, Numbers } from "./data";
import type { Sandwich } from "./sandwich";

export class Tree {
  readonly size: number;
  private childrenOf: number[][] | null = null;

  constructor(
    readonly nodes: Nodes,
    readonly row: Numbers, // rows from the outermost in
    readonly rows: number,
    readonly colours: readonly string[],
    readonly side: Numbers | null = null, // 1: inside of the function in the middle; -1: around it
    readonly places = 0, // where that function is called
  ) {
    this.size = nodes.frame.length;
  }

  isGone(i: number): boolean {
    return Boolean(this.nodes.gone?.[i]);
  }

  // What only the recording before has is laid out by its weight there.
  weight(i: number): number {
    return this.isGone(i) ? this.nodes.before![i]! : this.nodes.total[i]!;
  }

  end(i: number): number {
    return this.nodes.start[i]! + this.weight(i);
  }

  // As they stand beside each other; what is gone stands at the end.
  children(i: number): readonly number[] {
    this.childrenOf ??= this.allChildren();
    return this.childrenOf[i]!;
  }

  private allChildren(): number[][] {
    const found: number[][] = Array.from({ length: this.size }, () => []);
    for (let i = 1; i < this.size; i++) found[this.nodes.parent[i]!]!.push(i);
    const order = (a: number, b: number) => Number(this.isGone(a)) - Number(this.isGone(b)) || this.nodes.start[a]! - this.nodes.start[b]!;
    for (const below of found) below.sort(order);
    return found;
  }
}

export function treeOfPicture(data: FlameData, colours: readonly string[]): Tree {
  return new Tree(data.nodes, data.nodes.depth, data.rows, colours);
}

// `sandwich` with the rows of its frames: callers on one side of the function, callees on the other.
export function treeOfSandwich(data: FlameData, picture: Tree, sandwich: Sandwich): Tree {
  const isCaller = (i: number) => sandwich.side[i] === (data.inverted ? 1 : -1);
  const deepest = (of: boolean) => sandwich.depth.reduce((most, depth, i) => (i && isCaller(i) === of ? Math.max(most, depth) : most), 0);
  const above = deepest(true);
  const row = sandwich.depth.map((levels, i) => above + (isCaller(i) ? -levels : levels));
  const changes = data.compared ? row.map((_, i) => changeOf(data, sandwich, i)) : null;
  const nodes: Nodes = changes ? { ...sandwich, sure: changes.map(({ sure }) => Number(sure)) } : sandwich;
  const colours = changes ? changes.map(({ colour }) => colour) : coloursOf(picture, sandwich.frame);
  return new Tree(nodes, row, above + 1 + deepest(false), colours, sandwich.side, sandwich.places);
}

function coloursOf(picture: Tree, frames: number[]): string[] {
  const known = new Map<number, string>();
  for (let i = 0; i < picture.size; i++) known.set(picture.nodes.frame[i]!, picture.colours[i]!);
  return frames.map(frame => known.get(frame)!);
}

// How much of the larger weight a frame changed by, and whether that is more than the chance of
// sampling explains.
function changeOf(data: FlameData, nodes: Nodes, i: number): { sure: boolean; colour: string } {
  const { units, steps, sure } = data.compared!;
  const now = nodes.total[i]! / units;
  const change = nodes.change![i]!;
  const before = now - change;
  const ofNow = now / Math.sqrt(Math.max(nodes.count[i]!, 1));
  const ofBefore = before / Math.sqrt(Math.max(nodes.count_before![i]!, 1));
  const error = data.sampled ? sure * Math.hypot(ofNow, ofBefore) : 0;
  if (!change || Math.abs(change) <= error) return { sure: false, colour: "same" };
  const part = Math.abs(change) / Math.max(now, before);
  const shade = 1 + steps.filter(step => part >= step).length;
  return { sure: true, colour: `${change > 0 ? "grew" : "shrank"}${shade}` };
}
