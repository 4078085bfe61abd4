// What makes the SVG and the page of `layerscope flame` answer: show/flame/viewer.js. The frames are
// the rects in #frames, in the order of the data.

import type { FlameData } from "./data";
import { RectPainter } from "./rect_painter";
import { sandwich } from "./sandwich";
import { treeOfPicture } from "./tree";
import { Viewer } from "./viewer";
import "./viewer.css";

const LOWEST_PX = 200;

function start(svg: SVGSVGElement): void {
  const data = JSON.parse(svg.querySelector("#flame-data")!.textContent!) as FlameData;
  const frames = svg.querySelector<SVGElement>("#frames")!;
  const rects = [...frames.querySelectorAll<SVGElement>("rect")];
  const picture = treeOfPicture(data, rects.map(rect => rect.getAttribute("class")!));
  // In a page the figure around it says how wide it is.
  const figure = (svg as Element) === document.documentElement ? null : svg.parentElement;
  new Viewer(svg, data, picture, new RectPainter(frames, picture, rects), {
    width: () => figure?.clientWidth ?? (document.documentElement.clientWidth || window.innerWidth),
    bottom: () => (figure ? null : Math.max(window.innerHeight + window.scrollY, LOWEST_PX)),
  });
}

start(document.querySelector<SVGSVGElement>("#layerscope-flame")!);
// For those who ask the picture from a console.
Object.assign(globalThis, { sandwich });
