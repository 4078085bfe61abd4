// One path for all frames of a colour, and a rectangle for the one that is chosen or below the mouse.

import { type Painter, type Rows, svgElement } from "./painter";
import type { Places } from "./places";
import type { Tree } from "./tree";

export class PathPainter implements Painter {
  private tree!: Tree;
  private rows!: Rows;
  private places!: Places;
  private hits: ReadonlySet<number> | null = null;
  private readonly paths = svgElement("g", { "aria-hidden": "true" });
  private readonly hovered = svgElement("rect", { class: "outline hovered" });
  private readonly focused = svgElement("rect", { class: "outline" });
  private current = 0;
  private byRow: Map<number, number[]> | null = null; // by top, the frames of a row from left to right

  constructor(private readonly holder: SVGElement) {
    holder.replaceChildren(this.paths, this.hovered, this.focused);
    holder.addEventListener("mouseleave", () => this.hover(null));
  }

  show(tree: Tree, rows: Rows): void {
    this.tree = tree;
    this.rows = rows;
    this.hits = null;
    this.current = 0;
  }

  place(places: Places): void {
    this.places = places;
    this.byRow = null;
    this.draw();
    this.hover(null);
    this.outline(this.focused, this.current);
  }

  mark(hits: ReadonlySet<number> | null): void {
    this.hits = hits;
    if (this.places) this.draw();
  }

  at(event: MouseEvent): number | null {
    const box = this.holder.ownerSVGElement!.getBoundingClientRect();
    const found = this.frameAt(event.clientX - box.left, event.clientY - box.top);
    this.hover(found);
    return found;
  }

  chosen(i: number): SVGElement {
    this.current = i;
    this.outline(this.focused, i);
    return this.focused;
  }

  release(): void {
    this.focused.classList.remove("chosen");
  }

  private draw(): void {
    const parts = new Map<string, string[]>();
    const { isShown } = this.places;
    for (let i = 0; i < this.tree.size; i++) {
      if (!isShown[i]) continue;
      const kind = this.classOf(i);
      let part = parts.get(kind);
      if (!part) parts.set(kind, (part = []));
      part.push(this.outlineOf(i));
    }
    this.paths.replaceChildren(...[...parts].map(([kind, outlines]) => svgElement("path", { class: kind, d: outlines.join("") })));
  }

  private classOf(i: number): string {
    const around = this.places.isAround[i] ? " around" : "";
    return `${this.tree.colours[i]}${around}${this.hits?.has(i) ? " hit" : ""}`;
  }

  private outlineOf(i: number): string {
    const width = rounded(Math.max(this.places.px[i]!, 0.1));
    return `M${rounded(this.places.x[i]!)} ${this.rows.top(i)}h${width}v${this.rows.height}h-${width}z`;
  }

  private hover(i: number | null): void {
    this.outline(this.hovered, i);
  }

  private outline(rect: SVGElement, i: number | null): void {
    const isSeen = i !== null && Boolean(this.places?.isShown[i]);
    rect.style.display = isSeen ? "" : "none";
    if (!isSeen) return;
    const [x, width] = [this.places.x[i]!, Math.max(this.places.px[i]!, 0.1)];
    for (const [key, value] of Object.entries({ x, y: this.rows.top(i), width, height: this.rows.height })) {
      rect.setAttribute(key, value.toFixed(2));
    }
  }

  private frameAt(x: number, y: number): number | null {
    this.byRow ??= this.allRows();
    for (const [top, row] of this.byRow) {
      if (y < top || y >= top + this.rows.height) continue;
      // The last one that begins before the mouse, of those that are wide enough to be hit.
      let low = 0;
      let high = row.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (this.places.x[row[middle]!]! <= x) low = middle + 1;
        else high = middle;
      }
      const found = row[low - 1];
      return found !== undefined && x < this.places.x[found]! + this.places.px[found]! ? found : null;
    }
    return null;
  }

  private allRows(): Map<number, number[]> {
    const found = new Map<number, number[]>();
    for (let i = 0; i < this.tree.size; i++) {
      if (!this.places.isShown[i]) continue;
      const top = this.rows.top(i);
      const row = found.get(top);
      if (row) row.push(i);
      else found.set(top, [i]);
    }
    for (const row of found.values()) row.sort((a, b) => this.places.x[a]! - this.places.x[b]!);
    return found;
  }
}

const rounded = (px: number) => Math.round(px * 100) / 100;
