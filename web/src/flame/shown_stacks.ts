// Stacks as they are shown: functions instead of lines, OpenMP's workers and each import as one frame,
// what is not shown passed over. The same steps as in analyse/stacks: openmp_workers.py, imports.py and
// frame_filter.py say why.

import { NONE, type Stacked } from "./frame_tree";
import { BODY, MACHINERY, MINE, type Rules, SYSTEM, TEAM, THREAD } from "./rules";

export interface Shown extends Stacked {
  into: Int32Array; // of each node the one that has its weight
}

// `layers`: the layers of frames that are shown; null: the default.
export function shownStacks(rules: Rules, given: Stacked, layers: ReadonlySet<string> | null): Shown {
  const numbers = layers && new Set([...layers].map(name => rules.layerCalled(name)));
  const order = outermostFirst(given.up);
  const functions = { up: given.up, frame: given.frame.map(frame => rules.function[frame]!) };
  const workers = withWorkers(rules, functions);
  const imports = foldsImports(rules, numbers) ? withImports(rules, workers, order) : { ...workers, into: eachItself(order.length) };
  const folded = withoutHidden(rules, imports, order, numbers);
  return { ...folded, into: imports.into.map(node => folded.into[node]!) };
}

const eachItself = (size: number) => Int32Array.from({ length: size }, (_, i) => i);

// Not where all frames are asked for, or none of Python.
function foldsImports(rules: Rules, layers: ReadonlySet<number> | null): boolean {
  const named = rules.about.layers.length - 1; // all but `other`
  return !layers || (layers.has(rules.layerCalled("python")) && layers.size < named);
}

// The nodes so that each comes behind the one above it.
function outermostFirst(up: Int32Array): Int32Array {
  const order = eachItself(up.length);
  if (up.every((above, i) => above < i)) return order;
  const depth = new Int32Array(up.length).fill(NONE);
  const path: number[] = [];
  for (let i = 0; i < up.length; i++) {
    for (let node = i; node !== NONE && depth[node] === NONE; node = up[node]!) path.push(node);
    for (let node = path.pop(); node !== undefined; node = path.pop()) depth[node] = up[node] === NONE ? 0 : depth[up[node]!]! + 1;
  }
  return order.sort((a, b) => depth[a]! - depth[b]!);
}

// The nearest node of those chosen, itself or above it.
function nearest(up: Int32Array, isChosen: (node: number) => boolean, order: Int32Array): Int32Array {
  const found = new Int32Array(up.length).fill(NONE);
  for (const node of order) found[node] = isChosen(node) ? node : up[node] === NONE ? NONE : found[up[node]!]!;
  return found;
}

export function hasAbove(up: Int32Array, isChosen: (node: number) => boolean): (node: number) => boolean {
  const found = nearest(up, isChosen, outermostFirst(up));
  return node => node !== NONE && found[node] !== NONE;
}

function withWorkers(rules: Rules, { up, frame }: Stacked): Stacked {
  const has = (node: number, flag: number) => Boolean(rules.flags[frame[node]!]! & flag);
  const isWorker = (node: number) => up[node] !== NONE && has(node, TEAM) && has(up[node]!, THREAD);
  return { up, frame: frame.map((one, node) => (isWorker(node) ? rules.about.workers : one)) };
}

// Each import of a library is one frame. Waits stay, below it.
function withImports(rules: Rules, { up, frame }: Stacked, order: Int32Array): Shown {
  const size = up.length;
  const has = (node: number, flag: number) => Boolean(rules.flags[frame[node]!]! & flag);
  const begin = new Int32Array(size).fill(NONE); // where the import around it began
  const into = new Int32Array(size).fill(NONE); // the node that it is folded into
  const hasBody = new Uint8Array(size);
  for (const node of order) {
    const above = up[node]!;
    const around = above === NONE ? NONE : into[above]!;
    const isKnown = around !== NONE && hasBody[above] === 1;
    const begins = around === NONE && has(node, SYSTEM);
    const isFirst = around !== NONE && !isKnown && has(node, BODY);
    const isLibrary = isFirst && !has(node, MINE);
    begin[node] = begins ? node : around === NONE ? NONE : begin[above]!;
    into[node] = isFirst && !isLibrary ? NONE : begins || isLibrary ? node : around;
    hasBody[node] = Number(isKnown || isLibrary);
  }
  const waits = rules.layerCalled("waits");
  const shown: Shown = { up: up.slice(), frame: frame.slice(), into: eachItself(size) };
  for (let node = 0; node < size; node++) {
    const isInside = into[node] !== NONE;
    const stands = into[node] === node;
    const isWait = rules.layer[frame[node]!] === waits;
    if (has(node, BODY) && begin[node] !== NONE && (stands || !isInside)) shown.up[node] = up[begin[node]!]!;
    if (isInside && isWait) shown.up[node] = into[node]!;
    if (isInside && !isWait) shown.into[node] = into[node]!;
    if (stands) shown.frame[node] = has(node, BODY) ? rules.imported[frame[node]!]! - 1 : rules.about.importing;
  }
  return shown;
}

// Frames that are not shown are passed over: their weight belongs to the nearest one around them that
// is. Unless layers are named, native code leads to what called it, and all else leads past it.
function withoutHidden(rules: Rules, { up, frame }: Stacked, order: Int32Array, layers: ReadonlySet<number> | null): Shown {
  const other = rules.layerCalled("other");
  const layerOf = (node: number) => rules.layer[frame[node]!]!;
  const isShown = (node: number) => (layers ? layers.has(layerOf(node)) || layerOf(node) === other : !(rules.flags[frame[node]!]! & MACHINERY));
  // One more node for what has none of them around it.
  const nothing = up.length;
  const found = nearest(up, isShown, order);
  const past = Int32Array.from({ length: nothing + 1 }, (_, node) => {
    if (node === nothing || !isShown(node) || up[node] === NONE) return NONE;
    return found[up[node]!]!;
  });
  const into = Int32Array.from(found, node => (node === NONE ? nothing : node));
  const frames = Int32Array.from({ length: nothing + 1 }, (_, node) => (node === nothing ? rules.about.no_frame : frame[node]!));
  if (layers) return { up: past, frame: frames, into };
  return { up: pastNative(rules, past, frames, order), frame: frames, into };
}

function pastNative(rules: Rules, up: Int32Array, frame: Int32Array, order: Int32Array): Int32Array {
  const [native, kernel, waits] = ["native", "kernel", "waits"].map(name => rules.layerCalled(name));
  const layerOf = (node: number) => rules.layer[frame[node]!]!;
  const outside = nearest(up, node => layerOf(node) !== native, order);
  return up.map((above, node) => {
    const keeps = layerOf(node) === native || layerOf(node) === kernel || layerOf(node) === waits;
    return keeps || above === NONE ? above : outside[above]!;
  });
}
