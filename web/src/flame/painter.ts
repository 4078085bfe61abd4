// How frames come onto the screen. A file has an element for each, which is there without a script; the
// page of the report has one for each colour, so that 20,000 frames are drawn at once.

import type { Places } from "./places";
import type { Tree } from "./tree";

export const SVG = "http://www.w3.org/2000/svg";

// A picture of frames: where the top of each is, and how high they are.
export interface Rows {
  height: number;
  top: (i: number) => number;
}

export interface Painter {
  show(tree: Tree, rows: Rows): void;
  place(places: Places): void;
  mark(hits: ReadonlySet<number> | null): void;
  // The frame below the mouse.
  at(event: MouseEvent): number | null;
  // The element that stands for a frame while it is chosen, and is given the focus.
  chosen(i: number): SVGElement;
  release(i: number): void;
}

export function svgElement(name: string, attributes: Record<string, string | number> = {}): SVGElement {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, String(value));
  return made;
}
