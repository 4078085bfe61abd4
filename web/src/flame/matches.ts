// The frames that a search finds, and the weight that they cover.

import type { FlameData } from "./data";
import type { Tree } from "./tree";

export interface Matches {
  hits: number[];
  seen: Set<number>; // the hits that can be seen: what is gone is where the outermost of it is
  covered: number;
  gone: number; // per unit, before
}

type Test = (text: string) => boolean;

// Words, or a regular expression between slashes; null where that is none.
function testOf(words: string): Test | null {
  const isExpression = words.length > 2 && words.startsWith("/") && words.endsWith("/");
  if (!isExpression) {
    const plain = words.toLowerCase();
    return text => text.toLowerCase().includes(plain);
  }
  try {
    const expression = new RegExp(words.slice(1, -1), "i");
    return text => expression.test(text);
  } catch {
    return null;
  }
}

export function matchesOf(tree: Tree, data: FlameData, words: string): Matches | null {
  const test = testOf(words);
  if (!test) return null;
  const { frame, parent, total, change } = tree.nodes;
  const isFound = data.frames.map(({ label, place }) => test(label) || test(place));
  const isInHit = new Uint8Array(tree.size);
  const found: Matches = { hits: [], seen: new Set(), covered: 0, gone: 0 };
  for (let i = 1; i < tree.size; i++) {
    const isCovered = isInHit[parent[i]!]!;
    isInHit[i] = isCovered;
    if (!isFound[frame[i]!]) continue;
    isInHit[i] = 1;
    found.hits.push(i);
    if (isCovered) continue;
    found.covered += total[i]!;
    if (tree.isGone(i)) found.gone -= change![i]!;
  }
  for (const hit of found.hits) {
    found.seen.add(hit);
    for (let i = hit; tree.isGone(i); i = parent[i]!) found.seen.add(i);
  }
  return found;
}
