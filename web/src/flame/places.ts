// Where each frame is drawn when one of them fills the picture.

import type { FlameData } from "./data";
import type { Tree } from "./tree";

// Thinner frames are not drawn.
const THINNEST_PX = 0.1;

export interface Places {
  x: Float64Array;
  px: Float64Array;
  isShown: Uint8Array;
  isAround: Uint8Array; // it holds the one that fills the picture
}

export function placesOf(tree: Tree, data: FlameData, zoomed: number, width: number): Places {
  const { size } = tree;
  const places = {
    x: new Float64Array(size),
    px: new Float64Array(size),
    isShown: new Uint8Array(size),
    isAround: new Uint8Array(size),
  };
  for (let i = tree.nodes.parent[zoomed]!; i >= 0; i = tree.nodes.parent[i]!) places.isAround[i] = 1;
  const isInside = insideOf(tree, zoomed);
  const scale = width / (tree.weight(zoomed) || 1);
  const from = tree.nodes.start[zoomed]!;
  const isOfGone = tree.isGone(zoomed);
  for (let i = 0; i < size; i++) {
    if (places.isAround[i]) {
      places.px[i] = width;
      places.isShown[i] = 1;
    } else if (tree.isGone(i) && !isOfGone) {
      placeAtTheEnd(tree, data, places, i);
    } else if (isInside(i)) {
      places.x[i] = (tree.nodes.start[i]! - from) * scale;
      places.px[i] = tree.weight(i) * scale;
      places.isShown[i] = Number(places.px[i]! >= THINNEST_PX);
    }
  }
  return places;
}

// Whether a frame is the one that fills the picture, or lies in it.
function insideOf(tree: Tree, zoomed: number): (i: number) => boolean {
  const { start, depth } = tree.nodes;
  const [from, to] = [start[zoomed]!, tree.end(zoomed)];
  const isOfGone = tree.isGone(zoomed);
  const { side } = tree;
  return i => {
    if (i === zoomed) return true;
    if (tree.isGone(i) !== isOfGone || depth[i]! <= depth[zoomed]!) return false;
    if (zoomed && side && side[i] !== side[zoomed]) return false;
    return start[i]! >= from && tree.end(i) <= to;
  };
}

// What is gone stands at the end of its caller, where that is shown.
function placeAtTheEnd(tree: Tree, data: FlameData, places: Places, i: number): void {
  const { px, least, part } = data.gone!;
  const caller = tree.nodes.parent[i]!;
  if (tree.isGone(caller) || places.isAround[caller]) return;
  const all = tree.children(caller).filter(child => tree.isGone(child));
  const each = Math.min(px, (part * places.px[caller]!) / all.length);
  places.x[i] = places.x[caller]! + places.px[caller]! - each * (all.length - all.indexOf(i));
  places.px[i] = each;
  places.isShown[i] = Number(each >= least);
}
