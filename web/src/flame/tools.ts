// The search field and buttons above the frames, and the tooltip.

import { svgElement } from "./painter";

const XHTML = "http://www.w3.org/1999/xhtml";
const TIP_PX = 560;
const SPACE_PX = 200;

function element<T extends HTMLElement>(tag: string, attributes: Record<string, string> = {}, words = ""): T {
  const made = document.createElementNS(XHTML, tag) as T;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = words;
  return made;
}

export class Tools {
  readonly field = element<HTMLInputElement>("input", {
    type: "search",
    placeholder: "search: words or /regex/",
    "aria-label": "search frames",
    title: "key /",
    spellcheck: "false",
  });
  readonly reset = element<HTMLButtonElement>("button", { type: "button", title: "key Escape" }, "reset");
  readonly callers = element<HTMLButtonElement>(
    "button",
    { type: "button", title: "of the chosen frame, wherever it is called: key s" },
    "callers and callees",
  );
  readonly found = element("span", { class: "found", role: "status", "aria-live": "polite" });

  constructor(private readonly holder: SVGElement) {
    this.reset.disabled = this.callers.disabled = true;
    const tools = element("div", { class: "flame-tools" });
    tools.append(this.field, this.reset, this.callers, this.found);
    holder.replaceChildren(tools);
  }

  resize(width: number): void {
    this.holder.setAttribute("width", String(width));
  }
}

export class Tip {
  private readonly tip = element("div", { class: "flame-tip", role: "tooltip", id: "flame-tip" });
  private readonly over = svgElement("foreignObject");

  constructor(svg: SVGElement) {
    Object.assign(this.over.style, { pointerEvents: "none", display: "none", overflow: "visible" });
    this.over.append(this.tip);
    svg.append(this.over);
  }

  write(name: string, lines: string[], colour: string): void {
    this.tip.replaceChildren(element("b", {}, name), ...lines.map(line => element("div", {}, line)));
    this.tip.children[1]?.prepend(element("i", { class: colour }));
  }

  // Beside a place in the picture, which is so wide and ends so low.
  show(x: number, y: number, width: number, low: number): void {
    this.over.style.display = "";
    this.over.setAttribute("width", String(Math.min(TIP_PX, width)));
    this.over.setAttribute("height", String(SPACE_PX));
    const box = this.tip.getBoundingClientRect();
    const isLow = y + 18 + box.height > low;
    this.over.setAttribute("x", String(Math.max(0, Math.min(x + 14, width - box.width - 6))));
    this.over.setAttribute("y", String(isLow ? Math.max(0, y - box.height - 10) : y + 18));
  }

  hide(): void {
    this.over.style.display = "none";
  }
}
