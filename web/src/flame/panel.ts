// The panel beside the picture in the page of `layerscope flame`: what a frame says, and the frames
// with most weight of their own. It is show/flame/page.js.

import type { FrameDetail } from "./viewer";
import "./panel.css";

interface Heavy {
  label: string;
  place: string;
  layer: string;
  own: number;
  own_text: string;
  total?: number;
  total_text?: string;
  change?: number;
  change_text?: string;
  sure?: boolean;
}

type By = "own" | "total" | "change";

const MOST_ROWS = 200;

const svg = document.getElementById("layerscope-flame")!;
const data = JSON.parse(document.getElementById("frames-data")!.textContent!) as Heavy[];
const body = document.querySelector("#heaviest tbody")!;
const headings = [...document.querySelectorAll<HTMLElement>("#heaviest th")];
const third = headings[2]!.dataset["by"] as "total" | "change";

function made(tag: string, words = ""): HTMLElement {
  return Object.assign(document.createElement(tag), { textContent: words });
}

svg.addEventListener("flame-frame", event => {
  const { label, lines } = (event as CustomEvent<FrameDetail>).detail;
  document.getElementById("frame-name")!.textContent = label;
  document.getElementById("frame-lines")!.replaceChildren(...lines.map(line => made("li", line)));
});

function row(frame: Heavy): HTMLElement {
  const link = document.createElement("button");
  link.append(Object.assign(document.createElement("i"), { className: frame.layer }), frame.label);
  link.title = frame.place || frame.label;
  link.addEventListener("click", () => svg.dispatchEvent(new CustomEvent("flame-search", { detail: frame.label })));
  const first = document.createElement("td");
  first.append(link);
  const last = made("td", frame[`${third}_text`]);
  if (third === "change" && !frame.sure) {
    last.className = "faint";
    last.title = "no more than chance";
  }
  const found = document.createElement("tr");
  found.append(first, made("td", frame.own_text), last);
  return found;
}

function sort(by: By): void {
  const heaviest = [...data].sort((a, b) => b[by]! - a[by]!).slice(0, MOST_ROWS);
  body.replaceChildren(...heaviest.map(row));
  for (const heading of headings) {
    if (heading.dataset["by"]) heading.setAttribute("aria-sort", heading.dataset["by"] === by ? "descending" : "none");
  }
}

for (const heading of headings) {
  const by = heading.dataset["by"] as By | undefined;
  if (by) heading.querySelector("button")!.addEventListener("click", () => sort(by));
}
sort(third === "change" ? third : "own");
