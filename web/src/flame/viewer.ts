// Zoom, search, tooltips and keys of a flame graph. Weights are whole numbers; places are parts of the
// whole.

import { plural } from "../ui/format";
import type { FlameData } from "./data";
import { Labels } from "./labels";
import { type Matches, matchesOf } from "./matches";
import type { Painter } from "./painter";
import { type Places, placesOf } from "./places";
import { sandwich } from "./sandwich";
import { Tip, Tools } from "./tools";
import { type Tree, treeOfSandwich } from "./tree";
import { Words } from "./words";

const NARROWEST_PX = 320;
const TYPING_MS = 80;

export interface Surroundings {
  width: () => number;
  bottom: () => number | null; // where the window ends; null: where the picture does
}

// What listeners of `flame-frame` get.
export interface FrameDetail {
  label: string;
  frame: number;
  lines: string[];
  node: number;
}

export class Viewer {
  private tree: Tree;
  private places!: Places;
  private matches: Matches | null = null;
  private zoomed = 0;
  private chosen = 0;
  private left: [number, number] | null = null; // zoomed and chosen before callers and callees
  private width: number;
  private height: number;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private readonly words: Words;
  private readonly labels: Labels;
  private readonly tools: Tools;
  private readonly tip: Tip;
  private readonly frames: SVGElement;
  private readonly notes: SVGElement;
  private readonly ended = new AbortController();

  constructor(
    private readonly svg: SVGSVGElement,
    private readonly data: FlameData,
    private readonly picture: Tree,
    private readonly painter: Painter,
    private readonly around: Surroundings,
  ) {
    const part = (id: string) => svg.querySelector<SVGElement>(`#${id}`)!;
    this.frames = part("frames");
    this.notes = part("notes");
    this.words = new Words(data);
    this.labels = new Labels(part("labels"));
    this.tools = new Tools(part("tools"));
    this.tip = new Tip(svg);
    this.tree = picture;
    this.width = data.width;
    this.height = data.height;
    this.show(picture);
    this.places = placesOf(picture, data, 0, this.width);
    this.choose(0, false);
    this.fit();
    this.listen();
    if (data.flipped) this.painter.chosen(0).scrollIntoView({ block: "nearest" });
    svg.classList.add("ready");
  }

  // No longer answer.
  end(): void {
    clearTimeout(this.waiting);
    this.ended.abort();
  }

  private top(i: number): number {
    const { rows, row } = this.tree;
    return this.data.top + (this.data.flipped ? rows - 1 - row[i]! : row[i]!) * this.data.row;
  }

  private name(i: number): string {
    return this.words.name(this.tree, i);
  }

  private lines(i: number): string[] {
    return this.words.lines(this.tree, i, this.zoomed);
  }

  // ---- what is shown: the picture, or the callers and callees of a function ----

  private show(tree: Tree): void {
    this.painter.release(this.chosen);
    this.labels.clear();
    this.tree = tree;
    this.matches = null;
    this.zoomed = this.chosen = 0;
    this.painter.show(tree, { height: this.data.row, top: i => this.top(i) });
    const more = (tree.rows - this.data.rows) * this.data.row;
    this.height = this.data.height + more;
    this.notes.setAttribute("transform", `translate(0 ${more})`);
    this.svg.setAttribute("height", String(this.height));
  }

  private canBeShown(i: number): boolean {
    return this.tree.nodes.frame[i]! > 0 && this.tree.nodes.total[i]! > 0;
  }

  private showSandwich(): void {
    if (!this.canBeShown(this.chosen)) return;
    const wanted = this.tree.nodes.frame[this.chosen]!;
    this.left ??= [this.zoomed, this.chosen];
    this.show(treeOfSandwich(this.data, this.picture, sandwich(this.data.nodes, wanted)));
    this.svg.dataset["sandwich"] = this.name(0);
    this.begin(0, 0);
  }

  private showPicture([zoomed, chosen]: [number, number]): void {
    this.left = null;
    this.show(this.picture);
    delete this.svg.dataset["sandwich"];
    this.begin(zoomed, chosen);
  }

  private begin(zoomed: number, chosen: number): void {
    this.tools.field.value = "";
    this.search("");
    this.fit();
    this.zoom(zoomed);
    this.choose(chosen, true);
    this.tip.hide();
  }

  // ---- places ----

  private layout(): void {
    this.places = placesOf(this.tree, this.data, this.zoomed, this.width);
    this.painter.place(this.places);
    const { x, px, isShown } = this.places;
    for (let i = 0; i < this.tree.size; i++) {
      const words = isShown[i] ? this.labels.fitted(this.words.about(this.tree, i), px[i]!) : "";
      this.labels.write(i, words, x[i]!, this.top(i) + this.data.row, Boolean(this.matches?.seen.has(i)));
    }
  }

  private fit(): void {
    this.width = Math.max(this.around.width() || this.data.width, NARROWEST_PX);
    this.svg.setAttribute("width", String(this.width));
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.tools.resize(this.width - 20);
    this.layout();
  }

  private zoom(i: number): void {
    this.zoomed = i;
    this.layout();
    this.updateReset();
    this.svg.dispatchEvent(new CustomEvent("flame-zoom", { detail: i }));
  }

  private get isAsAtFirst(): boolean {
    return this.zoomed === 0 && !this.matches && !this.tree.side;
  }

  private updateReset(): void {
    this.tools.reset.disabled = this.isAsAtFirst;
  }

  // ---- search ----

  private search(words: string): void {
    this.matches = words ? matchesOf(this.tree, this.data, words) : null;
    const seen = this.matches?.seen ?? null;
    this.svg.classList.toggle("searched", Boolean(seen));
    this.painter.mark(seen);
    this.labels.mark(seen);
    this.tools.found.textContent = this.foundWords(words);
    this.svg.dataset["searched"] = words;
    this.updateReset();
    this.svg.dispatchEvent(new CustomEvent("flame-searched", { detail: words }));
  }

  private foundWords(words: string): string {
    if (!words) return this.tree.side ? this.words.ofSandwich(this.tree) : "";
    if (!this.matches) return "no regular expression";
    const { hits, covered, gone } = this.matches;
    const lost = gone ? ` \u00b7 gone: ${this.words.amount(gone)} per ${this.data.compared!.per}` : "";
    // Callers and callees are of the same time: it is not counted twice.
    const share = this.tree.side ? "" : `${this.words.share(covered)} \u00b7 ${this.words.amount(covered)} \u00b7 `;
    return share + plural(hits.length, "frame") + lost;
  }

  // ---- the chosen frame and the tooltip ----

  private writeTip(i: number): void {
    this.tip.write(this.name(i), this.lines(i), this.tree.colours[i]!.split(" ")[0]!);
  }

  private showTip(i: number, x: number, y: number): void {
    this.writeTip(i);
    this.tip.show(x, y, this.width, this.around.bottom() ?? this.height);
  }

  private choose(i: number, hasFocus: boolean): void {
    this.tools.callers.disabled = !this.canBeShown(i);
    this.painter.release(this.chosen);
    this.chosen = i;
    const element = this.painter.chosen(i);
    const lines = this.lines(i);
    element.setAttribute("tabindex", "0");
    element.setAttribute("role", "treeitem");
    element.setAttribute("aria-level", String(this.tree.nodes.depth[i]! + 1));
    element.setAttribute("aria-label", [this.name(i), ...lines].join("; "));
    if (hasFocus) {
      element.classList.add("chosen");
      element.focus({ preventScroll: true });
      element.scrollIntoView({ block: "nearest" });
    }
    const detail: FrameDetail = { label: this.name(i), frame: this.tree.nodes.frame[i]!, lines, node: i };
    this.svg.dispatchEvent(new CustomEvent("flame-frame", { detail }));
  }

  // Back to the picture as it was before, or at first.
  private again(): void {
    clearTimeout(this.waiting);
    if (this.left) return this.showPicture(this.left);
    this.tools.field.value = "";
    this.tools.field.blur();
    this.search("");
    this.zoom(0);
    this.tip.hide();
  }

  // ---- mouse and keys ----

  private listen(): void {
    const { signal } = this.ended;
    const { frames, tools } = this;
    frames.addEventListener("mousemove", event => this.point(event), { signal });
    frames.addEventListener("mouseleave", () => this.tip.hide(), { signal });
    frames.addEventListener("mouseout", event => this.leave(event), { signal });
    frames.addEventListener("click", event => this.click(event), { signal });
    frames.addEventListener("keydown", event => this.walk(event), { signal });
    frames.addEventListener("focusout", () => this.tip.hide(), { signal });
    document.addEventListener("keydown", event => this.press(event), { signal });
    tools.field.addEventListener("input", () => this.type(), { signal });
    tools.reset.addEventListener("click", () => this.again(), { signal });
    tools.callers.addEventListener("click", () => this.showSandwich(), { signal });
    this.svg.addEventListener("flame-search", event => this.searchFor((event as CustomEvent<string>).detail), { signal });
    window.addEventListener("resize", () => this.fit(), { signal });
  }

  private point(event: MouseEvent): void {
    const i = this.painter.at(event);
    if (i === null) return this.tip.hide();
    const box = this.svg.getBoundingClientRect();
    this.showTip(i, event.clientX - box.left, event.clientY - box.top);
  }

  private leave(event: MouseEvent): void {
    if (!this.frames.contains(event.relatedTarget as Node | null)) this.tip.hide();
  }

  private click(event: MouseEvent): void {
    const i = this.painter.at(event);
    if (i === null) return;
    this.choose(i, true);
    this.zoom(i);
    this.writeTip(i);
  }

  // From frame to frame with the arrow keys.
  private walk(event: KeyboardEvent): void {
    const { chosen } = this;
    if (event.key === "Enter" || event.key === " ") this.zoom(chosen);
    else if (!event.key.startsWith("Arrow") && event.key !== "Home") return;
    else this.goTo(this.next(event.key));
    event.preventDefault();
  }

  private next(key: string): number | undefined {
    const { chosen } = this;
    const beyond = [this.tree.nodes.parent[chosen]!, ...this.tree.children(chosen).filter(i => this.isShown(i))].filter(i => i >= 0);
    switch (key) {
      case "ArrowDown":
        return beyond.find(i => this.top(i) > this.top(chosen));
      case "ArrowUp":
        return beyond.find(i => this.top(i) < this.top(chosen));
      case "ArrowLeft":
        return this.beside(chosen, -1);
      case "ArrowRight":
        return this.beside(chosen, 1);
      default:
        return key === "Home" ? 0 : undefined;
    }
  }

  private isShown(i: number): boolean {
    return Boolean(this.places.isShown[i]);
  }

  private beside(i: number, step: number): number | undefined {
    const { side, nodes } = this.tree;
    const siblings = i ? this.tree.children(nodes.parent[i]!) : [0];
    const all = siblings.filter(j => this.isShown(j) && (!side || side[j] === side[i]));
    return all[all.indexOf(i) + step];
  }

  private goTo(i: number | undefined): void {
    if (i === undefined) return;
    this.choose(i, true);
    this.showTip(i, this.places.x[i]!, this.top(i));
  }

  private press(event: KeyboardEvent): void {
    const on = event.target as Element;
    const isTyping = /^(input|textarea|select)$/i.test(on.tagName || "");
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    const isFind = event.key === "f" && (event.ctrlKey || event.metaKey) && document.activeElement !== this.tools.field;
    if (event.key === "Escape") this.escape(event);
    else if (event.key === "s" && !isTyping && !hasModifier) this.showSandwich();
    else if ((event.key === "/" && !isTyping) || isFind) {
      this.tools.field.focus();
      this.tools.field.select();
      event.preventDefault();
    }
  }

  // What surrounds the picture has the key where the picture has nothing to go back from.
  private escape(event: KeyboardEvent): void {
    const isSearching = document.activeElement === this.tools.field;
    if (!this.isAsAtFirst || isSearching) event.preventDefault();
    this.again();
  }

  private type(): void {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.search(this.tools.field.value.trim()), TYPING_MS);
  }

  // Search for these words; where they are the name of a frame, choose the heaviest one.
  searchFor(label: string): void {
    this.tools.field.value = label;
    this.search(label);
    const { total } = this.tree.nodes;
    const called = (this.matches?.hits ?? []).filter(i => this.name(i) === label).sort((a, b) => total[b]! - total[a]!);
    if (called.length) this.choose(called[0]!, false);
  }
}
