// Stacks merged into a tree, turned round, and cut to what can be seen: as analyse/stacks/tree.py and
// flame_layout.py do it, to the same numbers.

import type { Nodes } from "./data";

export const NONE = -1;

// As flame_layout.py has them.
const WIDTH_PX = 1200;
const THINNEST_PX = 0.1;
const THINNEST = THINNEST_PX / WIDTH_PX;
const MOST_DRAWN = 10_000;

// Nodes level by level, each level in the order of (parent, frame). `own`: weights of what ends here.
export interface FrameTree {
  parent: number[];
  frame: number[];
  own: number[];
  count: number[];
}

// Stacks before they are merged: the node above each, and its frame.
export interface Stacked {
  up: Int32Array;
  frame: Int32Array;
}

// Weights of nodes, by group: each group has a tree below a frame of its own.
export class Weighed {
  readonly node: number[] = [];
  readonly group: number[] = [];
  readonly own: number[] = [];
  readonly count: number[] = [];
  private readonly known = new Map<number, number>();

  constructor(private readonly groups: number) {}

  add(node: number, group: number, weight: number, count: number): void {
    const key = node * (this.groups + 1) + group + 1;
    const at = this.known.get(key);
    if (at === undefined) {
      this.known.set(key, this.node.length);
      this.append(node, group, weight, count);
    } else {
      this.own[at]! += weight;
      this.count[at]! += count;
    }
  }

  // Of a node that has none yet in this group.
  append(node: number, group: number, weight: number, count: number): void {
    this.node.push(node);
    this.group.push(group);
    this.own.push(weight);
    this.count.push(count);
  }
}

// `roots`: the frame of each group; nodes of group -1 have none around them. `frames`: more than there
// are numbers of frames.
export function mergedTree(stacked: Stacked, weighed: Weighed, roots: readonly number[], frames: number): FrameTree {
  const tree = new Growing(frames);
  const known = new Places(stacked.up.length, roots.length + 1);
  const path: number[] = [];
  for (let i = 0; i < weighed.node.length; i++) {
    if (!weighed.own[i] && !weighed.count[i]) continue;
    const group = weighed.group[i]!;
    let place = NONE;
    let node = weighed.node[i]!;
    for (; node !== NONE; node = stacked.up[node]!) {
      place = known.get(node, group);
      if (place !== NONE) break;
      path.push(node);
    }
    if (node === NONE && group >= 0) place = tree.child(NONE, roots[group]!);
    for (let below = path.pop(); below !== undefined; below = path.pop()) {
      place = tree.child(place, stacked.frame[below]!);
      known.set(below, group, place);
    }
    tree.own[place]! += weighed.own[i]!;
    tree.count[place]! += weighed.count[i]!;
  }
  return inLevels(tree);
}

// Where nodes are in the tree, by group.
class Places {
  private readonly alone: Int32Array | null;
  private readonly grouped = new Map<number, number>();

  constructor(
    nodes: number,
    private readonly groups: number,
  ) {
    this.alone = groups === 1 ? new Int32Array(nodes).fill(NONE) : null;
  }

  get(node: number, group: number): number {
    return this.alone ? this.alone[node]! : (this.grouped.get(node * this.groups + group + 1) ?? NONE);
  }

  set(node: number, group: number, place: number): void {
    if (this.alone) this.alone[node] = place;
    else this.grouped.set(node * this.groups + group + 1, place);
  }
}

class Growing implements FrameTree {
  readonly parent: number[] = [];
  readonly frame: number[] = [];
  readonly own: number[] = [];
  readonly count: number[] = [];
  private readonly children = new Map<number, number>();

  constructor(private readonly frames: number) {}

  child(of: number, frame: number): number {
    const key = (of + 1) * this.frames + frame;
    let at = this.children.get(key);
    if (at === undefined) {
      at = this.parent.push(of) - 1;
      this.frame.push(frame);
      this.own.push(0);
      this.count.push(0);
      this.children.set(key, at);
    }
    return at;
  }
}

// The same tree in its order.
function inLevels(tree: FrameTree): FrameTree {
  const below: number[][] = tree.parent.map(() => []);
  const outermost: number[] = [];
  tree.parent.forEach((parent, i) => (parent === NONE ? outermost : below[parent]!).push(i));
  const byFrame = (a: number, b: number) => tree.frame[a]! - tree.frame[b]!;
  const order: number[] = [];
  for (let level = outermost.sort(byFrame); level.length; level = level.flatMap(i => below[i]!.sort(byFrame))) order.push(...level);
  const place = new Int32Array(tree.parent.length);
  order.forEach((i, at) => (place[i] = at));
  return {
    parent: order.map(i => (tree.parent[i] === NONE ? NONE : place[tree.parent[i]!]!)),
    frame: order.map(i => tree.frame[i]!),
    own: order.map(i => tree.own[i]!),
    count: order.map(i => tree.count[i]!),
  };
}

export function totalsOf(parent: readonly number[], own: readonly number[]): number[] {
  const totals = [...own];
  for (let i = totals.length - 1; i >= 0; i--) if (parent[i] !== NONE) totals[parent[i]!]! += totals[i]!;
  return totals;
}

const sumOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0);

// The stacks with the innermost frame first. Where a frame has too little of the whole to be drawn,
// what called it is not looked for: its weight ends there.
export function invertedTree(tree: FrameTree, frames: number): FrameTree {
  const made: FrameTree = { parent: [], frame: [], own: [], count: [] };
  const enough = sumOf(tree.own) * THINNEST;
  let node = tree.own.flatMap((own, i) => (own || tree.count[i] ? [i] : []));
  let origin = node;
  let place = node.map(() => NONE);
  while (node.length) {
    const codes = node.map((one, i) => (place[i]! + 1) * frames + tree.frame[one]!);
    const known = [...new Set(codes)].sort((a, b) => a - b);
    const first = made.parent.length;
    const at = new Map(known.map((code, i) => [code, first + i]));
    const totals = new Float64Array(known.length);
    codes.forEach((code, i) => (totals[at.get(code)! - first]! += tree.own[origin[i]!]!));
    for (const code of known) {
      made.parent.push(Math.floor(code / frames) - 1);
      made.frame.push(code % frames);
      made.own.push(0);
      made.count.push(0);
    }
    const next: { node: number[]; origin: number[]; place: number[] } = { node: [], origin: [], place: [] };
    codes.forEach((code, i) => {
      const here = at.get(code)!;
      const above = tree.parent[node[i]!]!;
      if (above !== NONE && totals[here - first]! >= enough) {
        next.node.push(above);
        next.origin.push(origin[i]!);
        next.place.push(here);
      } else {
        made.own[here]! += tree.own[origin[i]!]!;
        made.count[here]! += tree.count[origin[i]!]!;
      }
    });
    ({ node, origin, place } = next);
  }
  return made;
}

export interface Drawn {
  nodes: Nodes;
  whole: number;
  rows: number;
  left_out: number;
  thinnest_px: number;
}

// The frames that are drawn, the whole before them; siblings beside each other, the heaviest first.
// `isInOrder`: the outermost ones follow each other by their numbers.
export function drawnTree(tree: FrameTree, isInOrder: boolean): Drawn {
  const totals = totalsOf(tree.parent, tree.own);
  const counts = totalsOf(tree.parent, tree.count);
  const whole = sumOf(tree.own);
  const least = leastDrawn(totals, whole);
  const kept = totals.flatMap((total, i) => (total >= least ? [i] : []));
  const place = new Int32Array(totals.length).fill(NONE);
  kept.forEach((i, at) => (place[i] = at + 1));
  const parent = kept.map(i => (tree.parent[i] === NONE ? 0 : place[tree.parent[i]!]!));
  const nodes: Nodes = {
    parent: [NONE, ...parent],
    start: startsOf(tree, kept, parent, totals, isInOrder),
    total: [whole, ...kept.map(i => totals[i]!)],
    own: [0, ...kept.map(i => tree.own[i]!)],
    count: [sumOf(tree.count), ...kept.map(i => counts[i]!)],
    frame: [0, ...kept.map(i => tree.frame[i]! + 1)],
    depth: depthsOf([NONE, ...parent]),
  };
  const isOut = (i: number) => totals[i]! > 0 && totals[i]! < least && (tree.parent[i] === NONE || totals[tree.parent[i]!]! >= least);
  const rows = 1 + Array.from(nodes.depth).reduce((most, depth) => Math.max(most, depth), 0);
  const left_out = totals.reduce((sum, _, i) => sum + Number(isOut(i)), 0);
  return { nodes, whole, rows, left_out, thinnest_px: Math.max(THINNEST_PX, (least * WIDTH_PX) / Math.max(whole, 1)) };
}

function leastDrawn(totals: readonly number[], whole: number): number {
  const least = Math.max(1, Math.ceil((whole * THINNEST_PX) / WIDTH_PX));
  if (totals.reduce((sum, total) => sum + Number(total >= least), 0) <= MOST_DRAWN) return least;
  return Float64Array.from(totals).sort()[totals.length - MOST_DRAWN]! + 1;
}

function depthsOf(parent: readonly number[]): number[] {
  const depths: number[] = [];
  for (const above of parent) depths.push(above === NONE ? 0 : depths[above]! + 1);
  return depths;
}

function startsOf(tree: FrameTree, kept: number[], parent: number[], totals: number[], isInOrder: boolean): number[] {
  const heaviest = (at: number) => (isInOrder && parent[at] === 0 ? 0 : -totals[kept[at]!]!);
  const order = kept.map((_, at) => at);
  order.sort((a, b) => parent[a]! - parent[b]! || heaviest(a) - heaviest(b) || tree.frame[kept[a]!]! - tree.frame[kept[b]!]!);
  const start = new Array<number>(kept.length + 1).fill(0);
  const next = new Map<number, number>();
  // Parents have lower numbers, so their own start is known.
  for (const at of order) {
    const above = parent[at]!;
    const from = next.get(above) ?? start[above]!;
    start[at + 1] = from;
    next.set(above, from + totals[kept[at]!]!);
  }
  return start;
}
