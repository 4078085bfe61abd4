// A rectangle for each frame, as a file has them.

import { type Painter, type Rows, svgElement } from "./painter";
import type { Places } from "./places";
import type { Tree } from "./tree";

export class RectPainter implements Painter {
  private rects: SVGElement[];
  private readonly ofPicture: SVGElement[];
  private readonly picture: Tree;
  private shown: Tree;
  private number = new Map<EventTarget, number>();

  constructor(
    private readonly holder: SVGElement,
    picture: Tree,
    rects: SVGElement[],
  ) {
    this.rects = this.ofPicture = rects;
    this.picture = this.shown = picture;
  }

  show(tree: Tree, rows: Rows): void {
    if (this.shown !== tree) {
      this.rects = tree === this.picture ? this.ofPicture : tree.colours.map((colour, i) => rectOf(colour, i, rows));
      this.holder.replaceChildren(...this.rects);
      this.shown = tree;
    }
    this.number = new Map(this.rects.map((rect, i) => [rect, i]));
  }

  place(places: Places): void {
    this.rects.forEach((rect, i) => {
      const isShown = Boolean(places.isShown[i]);
      rect.style.display = isShown ? "" : "none";
      rect.classList.toggle("around", Boolean(places.isAround[i]));
      if (!isShown) return;
      rect.setAttribute("x", places.x[i]!.toFixed(2));
      rect.setAttribute("width", Math.max(places.px[i]!, 0.1).toFixed(2));
    });
  }

  mark(hits: ReadonlySet<number> | null): void {
    this.rects.forEach((rect, i) => rect.classList.toggle("hit", Boolean(hits?.has(i))));
  }

  at(event: MouseEvent): number | null {
    return this.number.get(event.target!) ?? null;
  }

  chosen(i: number): SVGElement {
    return this.rects[i]!;
  }

  release(i: number): void {
    this.rects[i]!.removeAttribute("tabindex");
    this.rects[i]!.classList.remove("chosen");
  }
}

function rectOf(colour: string, i: number, rows: Rows): SVGElement {
  return svgElement("rect", { class: colour, y: rows.top(i), height: rows.height });
}
