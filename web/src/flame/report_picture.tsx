// A flame graph in the page of the report.

import { useEffect, useRef } from "preact/hooks";
import { svgElement } from "./painter";
import { PathPainter } from "./path_painter";
import type { Picture } from "./picture";
import { type FrameDetail, Viewer } from "./viewer";
import "./palette.css";
import "./viewer.css";

interface Props {
  picture: Picture;
  label: string;
  search: string;
  onFrame: (frame: FrameDetail) => void;
  onSearch: (words: string) => void;
}

export function ReportPicture({ picture, label, search, onFrame, onSearch }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const svg = emptyPicture(label);
    holder.current!.replaceChildren(svg);
    svg.addEventListener("flame-frame", event => onFrame((event as CustomEvent<FrameDetail>).detail));
    svg.addEventListener("flame-searched", event => onSearch((event as CustomEvent<string>).detail));
    const viewer = new Viewer(svg, picture.data, picture.tree, new PathPainter(svg.querySelector("#frames")!), {
      width: () => holder.current?.clientWidth ?? 0,
      bottom: () => innerHeight - svg.getBoundingClientRect().top,
    });
    if (search) viewer.searchFor(search);
    // For those who ask the picture from a console.
    Object.assign(svg, { flame: picture.data });
    return () => viewer.end();
  }, [picture]);
  return <div class="flame" ref={holder} />;
}

// Stripes over the colour of a layer, as show/flame/markup.py has them.
const HATCHES: readonly [string, string, number][] = [
  ["spinning", "native", 45],
  ["unknown", "other", -45],
  ["gone", "shrank4", -45],
  ["gone-same", "same", -45],
];
const HATCH_PX = 7;

function hatch([name, colour, angle]: readonly [string, string, number]): SVGElement {
  const pattern = svgElement("pattern", {
    id: `hatch-${name}`,
    patternUnits: "userSpaceOnUse",
    width: HATCH_PX,
    height: HATCH_PX,
    patternTransform: `rotate(${angle})`,
  });
  pattern.append(svgElement("rect", { class: colour, width: HATCH_PX, height: HATCH_PX }), svgElement("rect", { class: "stripe", width: 2, height: HATCH_PX }));
  return pattern;
}

function emptyPicture(label: string): SVGSVGElement {
  const svg = svgElement("svg", { id: "layerscope-flame", role: "group", "aria-label": label }) as SVGSVGElement;
  svg.append(
    ...HATCHES.map(hatch),
    svgElement("foreignObject", { id: "tools", x: 0, y: 2, width: 0, height: 34 }),
    svgElement("g", { id: "frames", role: "tree", "aria-label": "frames" }),
    svgElement("g", { id: "labels", "aria-hidden": "true" }),
    svgElement("g", { id: "notes" }),
  );
  return svg;
}
