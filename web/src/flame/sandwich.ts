// The callers and the callees of one function, merged over all places where it is called: a tree with
// the function as its root. `side` of a node is 1 where it lies in what stands inside of the function
// in the picture, -1 where around it. A stack in which the function calls itself counts once: its
// outermost call has the callers, its innermost the callees.

import type { Nodes } from "./data";

const WEIGHTS = ["total", "own", "count", "change", "count_before"] as const;
type Weight = (typeof WEIGHTS)[number];
type Weights = Partial<Record<Weight, number[]>>;

export interface Sandwich extends Nodes {
  parent: number[];
  start: number[];
  total: number[];
  own: number[];
  count: number[];
  frame: number[];
  depth: number[];
  side: number[];
  places: number; // where the function is called
}

export function sandwich(nodes: Nodes, wanted: number): Sandwich {
  const made = new Making(nodes, wanted);
  const isInside = insideOf(nodes, wanted);
  const calls = outermostCalls(nodes, wanted, made.columns);
  const place = new Array<number>(nodes.frame.length).fill(-1);
  for (let i = 1; i < nodes.frame.length; i++) {
    if (!nodes.total[i]) continue;
    const around = place[nodes.parent[i]!]!;
    if (nodes.frame[i] === wanted) {
      place[i] = 0;
      made.addCall(i, isInside[i]!);
    } else if (around >= 0 && nodes.total[i]! > calls.total![i]!) {
      place[i] = made.child(around, nodes.frame[i]!, 1);
      made.addCallee(place[i]!, i, calls);
    }
  }
  made.arrange();
  return made.tree;
}

// By node whether a call of the function is around it.
function insideOf(nodes: Nodes, wanted: number): boolean[] {
  const found = new Array<boolean>(nodes.frame.length).fill(false);
  for (let i = 1; i < found.length; i++) {
    const around = nodes.parent[i]!;
    found[i] = nodes.frame[around] === wanted || found[around]!;
  }
  return found;
}

// By node the weights of the outermost calls of the function inside of it.
function outermostCalls(nodes: Nodes, wanted: number, columns: readonly Weight[]): Weights {
  const calls: Weights = {};
  for (const name of columns) {
    const sums = new Array<number>(nodes.frame.length).fill(0);
    for (let i = sums.length - 1; i > 0; i--) {
      sums[nodes.parent[i]!]! += nodes.frame[i] === wanted ? nodes[name]![i]! : sums[i]!;
    }
    calls[name] = sums;
  }
  return calls;
}

class Making {
  readonly columns: readonly Weight[];
  readonly tree: Sandwich;
  private readonly below: Map<number, number>[] = [new Map()];

  constructor(
    private readonly nodes: Nodes,
    wanted: number,
  ) {
    this.columns = WEIGHTS.filter(name => nodes[name]);
    this.tree = { parent: [-1], frame: [wanted], depth: [0], side: [0], start: [0], total: [], own: [], count: [], places: 0 };
    for (const name of this.columns) this.tree[name] = [0];
  }

  private weights(name: Weight): number[] {
    return this.tree[name] as number[];
  }

  child(of: number, frame: number, side: number): number {
    const key = side * (frame + 1);
    const known = this.below[of]!.get(key);
    if (known !== undefined) return known;
    const at = this.tree.parent.length;
    this.below[of]!.set(key, at);
    this.below.push(new Map());
    this.tree.parent.push(of);
    this.tree.frame.push(frame);
    this.tree.depth.push(this.tree.depth[of]! + 1);
    this.tree.side.push(side);
    this.tree.start.push(0);
    for (const name of this.columns) this.weights(name).push(0);
    return at;
  }

  // A call of the function, and what called it unless the function itself is around it.
  addCall(i: number, isInside: boolean): void {
    const { nodes } = this;
    this.tree.own[0]! += nodes.own[i]!;
    if (isInside) return;
    this.tree.places++;
    this.addTotals(0, i);
    for (let at = 0, j = nodes.parent[i]!; j > 0; j = nodes.parent[j]!) {
      at = this.child(at, nodes.frame[j]!, -1);
      this.addTotals(at, i);
    }
  }

  addCallee(at: number, i: number, calls: Weights): void {
    for (const name of this.columns) {
      const inCalls = name === "own" ? 0 : calls[name]![i]!;
      this.weights(name)[at]! += this.nodes[name]![i]! - inCalls;
    }
  }

  private addTotals(at: number, i: number): void {
    for (const name of this.columns) {
      if (name !== "own") this.weights(name)[at]! += this.nodes[name]![i]!;
    }
  }

  // Beside each other, the heaviest first.
  arrange(): void {
    const { start, total, side } = this.tree;
    this.below.forEach((below, i) => {
      const from = new Map([[1, start[i]!], [-1, start[i]!]]);
      for (const j of [...below.values()].sort((a, b) => total[b]! - total[a]!)) {
        start[j] = from.get(side[j]!)!;
        from.set(side[j]!, start[j]! + total[j]!);
      }
    });
  }
}
