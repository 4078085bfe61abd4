// The picture: which rows are where, what is under a point, and the drawing of it all.

import { effect, type Signal, signal } from "@preact/signals";
import { type Filter, isEverything, nameOf, type OneSpan, type SpanStore } from "../data/span_store";
import { parsedStep } from "../data/steps";
import type { Step, Tracks } from "../data/tracks";
import { chosen, mark, type Stretch, step, time as selectedTime, tracks as selectedTracks } from "../state/state";
import { colour } from "../ui/theme";
import { printed, type Series } from "./counters";
import { type Box, drawOverlay } from "./overlay";
import { Painter } from "./painter";
import { type Palette, type Palettes, rgbOf, spanPalettes, waitPalette } from "./palette";
import type { Layout, Row, RowModel } from "./rows";
import { drawRuler, type Flag, type RulerContent } from "./ruler";
import { firstAtLeast, placeAt, type Strip } from "./strips";
import { padded, View } from "./view";

// The row that has the keyboard's focus, by its key, and the span of it; -1: none.
export interface Focus {
  key: string;
  row: number;
}

// What is under a point of the picture.
export interface Pointed {
  row: Row;
  item: number; // a row of the block of spans or samples; -1: none
  at: number; // ns
}

// What a drag is about to select.
export interface Area {
  time: Stretch;
  tracks: readonly number[] | null;
}

export interface Frames {
  count: number;
  cpu_ms: number[]; // of the last frames, for measurements
}

export class Picture {
  readonly view: View;
  readonly focus = signal<Focus | null>(null);
  readonly frames: Frames = { count: 0, cpu_ms: [] };
  readonly layouts: Signal<Layout>;
  readonly scroll = signal(0);
  readonly sizes = signal(0); // changes when the picture has another size
  drag: Area | null = null;
  isFiltered = false;
  found: Uint8Array | null = null; // classes that the search has found
  stepsByProcess: ReadonlyMap<number, readonly Step[]> = new Map();
  readonly stepProcess = signal(-1); // the process whose steps the ruler shows; -1: there are none
  flags: readonly Flag[] = [];
  width = 0;
  height = 0;
  private painter: Painter | null = null;
  private overlay: HTMLCanvasElement | null = null;
  private ruler: HTMLCanvasElement | null = null;
  private colours: { spans: Palettes; waits: Palette; quiet: Palette } | null = null;
  private frame = 0;
  private stopFollowing = () => {};
  private isStale = true; // the spans have to be painted again, not only what lies over them

  constructor(
    readonly spans: SpanStore,
    readonly tracks: Tracks,
    public model: RowModel,
    layout: Layout,
    time: { whole: Stretch; limits: Stretch },
    private readonly scrollTo: (top: number) => void,
  ) {
    this.layouts = signal(layout);
    this.view = new View(time.whole, time.limits, () => this.draw());
  }

  get steps(): readonly Step[] {
    return this.stepsByProcess.get(this.stepProcess.peek()) ?? [];
  }

  get hasSteps(): boolean {
    return this.stepsByProcess.size > 0;
  }

  get isSearched(): boolean {
    return this.found !== null;
  }

  // Bring out what the filters keep and what the search has found.
  emphasise(filter: Filter, found: Uint8Array | null): void {
    this.isFiltered = !isEverything(filter);
    this.found = found;
    this.spans.emphasise(filter, found);
    this.draw();
  }

  get layout(): Layout {
    return this.layouts.peek();
  }

  get scrollTop(): number {
    return this.scroll.peek();
  }

  attach(canvas: HTMLCanvasElement, overlay: HTMLCanvasElement, ruler: HTMLCanvasElement): void {
    this.painter = new Painter(canvas);
    this.overlay = overlay;
    this.ruler = ruler;
    // What comes from a server is drawn when it is there.
    const stopSpans = effect(() => {
      void this.spans.pictures.value;
      this.draw();
    });
    const stopAnswers = effect(() => {
      void this.spans.answers.value;
      this.draw(false);
    });
    this.stopFollowing = () => [stopSpans, stopAnswers].forEach(stop => stop());
  }

  detach(): void {
    cancelAnimationFrame(this.frame);
    this.stopFollowing();
    this.view.stop();
    this.painter = this.overlay = this.ruler = null;
  }

  setLayout(layout: Layout, model: RowModel): void {
    this.model = model;
    this.layouts.value = layout;
    this.colours = null;
    this.draw();
  }

  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    this.sizes.value++;
    this.draw();
  }

  // Colours are asked for again when they change.
  recolour(): void {
    this.colours = null;
    this.draw();
  }

  // Draw with the next frame: all of it, or only what lies over the spans.
  draw(isStale = true): void {
    this.isStale ||= isStale;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  x(ns: number): number {
    const [from, to] = this.view.now;
    return ((ns - from) / (to - from)) * this.width;
  }

  timeAt(x: number): number {
    const [from, to] = this.view.now;
    return from + (x / this.width) * (to - from);
  }

  // Where a row begins in the picture.
  topOf(at: number): number {
    const { tops, pinnedCount, pinnedHeight } = this.layout;
    return at < pinnedCount ? tops[at] : pinnedHeight + tops[at] - this.scrollTop;
  }

  // The row at a height of the picture; -1: none.
  rowAt(y: number): number {
    const { rows, pinnedCount, pinnedHeight } = this.layout;
    if (y < 0) return -1;
    if (y < pinnedHeight) return this.lastTop(0, pinnedCount, y);
    const found = this.lastTop(pinnedCount, rows.length, y - pinnedHeight + this.scrollTop);
    return found >= 0 && this.topOf(found) + rows[found].height > y ? found : -1;
  }

  private lastTop(first: number, last: number, y: number): number {
    const { tops } = this.layout;
    let [low, high] = [first, last];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (tops[middle] <= y) low = middle + 1;
      else high = middle;
    }
    return low > first ? low - 1 : -1;
  }

  // The rows that can be seen.
  visible(): number[] {
    const { rows, pinnedCount } = this.layout;
    const found = Array.from({ length: pinnedCount }, (_, at) => at);
    const first = Math.max(pinnedCount, this.lastTop(pinnedCount, rows.length, this.scrollTop));
    for (let at = first; at < rows.length && this.topOf(at) < this.height; at++) found.push(at);
    return found;
  }

  pointed(x: number, y: number): Pointed | null {
    const at = this.rowAt(y);
    if (at < 0) return null;
    const row = this.layout.rows[at];
    const perPx = (this.view.now[1] - this.view.now[0]) / this.width;
    const from = this.timeAt(x);
    return { row, item: row.lane || row.waits ? this.itemAt(row, from - perPx / 2, from + perPx / 2) : -1, at: from };
  }

  private itemAt(row: Row, from: number, to: number): number {
    const drawn = row.lane ? [this.spans.found(row.lane), this.spans.kept(row.lane), this.spans.drawn(row.lane)] : [row.waits];
    for (const strip of drawn) {
      if (!strip) continue;
      // What is exactly here comes first; else what is a pixel beside it.
      const place = placeAt(strip, from, to);
      const near = place < 0 ? placeAt(strip, 2 * from - to, 2 * to - from) : place;
      if (near >= 0) return strip.rows[near];
    }
    return -1;
  }

  // The row of the layout that a span is in; -1: its thread is closed or filtered out.
  placeOfSpan(span: OneSpan): number {
    return this.layout.rows.findIndex(row => row.track === span.track && row.lane && this.spans.placeIn(row.lane, span) >= 0);
  }

  boxOf(span: OneSpan | undefined): Box | null {
    const at = span ? this.placeOfSpan(span) : -1;
    if (!span || at < 0) return null;
    const [left, right] = [this.x(span.start), this.x(span.start + span.dur)];
    const far = 4 * this.width; // beyond it a canvas draws no exact lines
    const x = Math.max(left, -far);
    return { x, y: this.topOf(at), width: Math.max(1, Math.min(right, far) - x), height: this.layout.rows[at].height };
  }

  // Scroll so that a row can be seen.
  reveal(at: number): void {
    const { pinnedCount, pinnedHeight, tops, rows } = this.layout;
    if (at < pinnedCount) return;
    const room = this.height - pinnedHeight;
    const top = tops[at];
    if (top < this.scrollTop) this.scrollTo(top);
    else if (top + rows[at].height > this.scrollTop + room) this.scrollTo(top + rows[at].height - room);
  }

  // Move and zoom so that a span can be seen, with its neighbours.
  show(span: OneSpan): void {
    const { start, dur } = span;
    const [from, to] = this.view.aim;
    const px = (dur / (to - from)) * this.width;
    const at = this.placeOfSpan(span);
    if (at >= 0) this.reveal(at);
    if (px < 4 || dur > (to - from) * 1.5) this.view.show(padded([start, start + dur], 2), true);
    else if (start < from || start + dur > to) {
      const middle = start + dur / 2;
      this.view.show([middle - (to - from) / 2, middle + (to - from) / 2], true);
    }
  }

  private drawNow(): void {
    if (!this.painter || !this.overlay || !this.ruler || !this.width) return;
    const began = performance.now();
    this.colours ??= this.makeColours();
    if (this.isStale) this.paint(this.painter, this.colours);
    this.isStale = false;
    this.stepProcess.value = this.processOfRuler();
    drawRuler(this.ruler, this.width, devicePixelRatio, this.rulerContent());
    this.drawOver(this.overlay);
    const { frames } = this;
    frames.count++;
    frames.cpu_ms.push(performance.now() - began);
    if (frames.cpu_ms.length > 1000) frames.cpu_ms.shift();
  }

  private makeColours(): { spans: Palettes; waits: Palette; quiet: Palette } {
    const spans = spanPalettes(this.spans.about);
    return { spans, waits: waitPalette(this.model.waits?.states ?? []), quiet: { ...spans.normal, text: null } };
  }

  private paint(painter: Painter, colours: { spans: Palettes; waits: Palette; quiet: Palette }): void {
    const { background } = colours.spans;
    painter.begin(this.width, this.height, devicePixelRatio, background);
    const rows = this.visible();
    const lanes = rows.flatMap(at => this.layout.rows[at].lane ?? []);
    const [from, to] = this.view.now;
    this.spans.see({ from, to, width: painter.width, lanes });
    for (const at of rows) {
      const row = this.layout.rows[at];
      if (!row.lane && !row.waits) continue;
      const clip = at < this.layout.pinnedCount ? 0 : this.layout.pinnedHeight;
      painter.row(this.layers(row, colours), this.topOf(at), row.height, clip, this.view.now, background);
    }
    const context = painter.end(cls => nameOf(this.spans, cls));
    for (const at of rows) {
      const { series, height } = this.layout.rows[at];
      if (series) drawSeries(context, series, this.view.now, this.width, this.topOf(at), height, devicePixelRatio);
    }
  }

  // What is painted in a row: its spans, over them those that filters and search bring out.
  private layers({ lane, waits }: Row, colours: { spans: Palettes; waits: Palette; quiet: Palette }): (readonly [Strip, Palette])[] {
    if (!lane) return waits ? [[waits, colours.waits]] : [];
    const { spans, isFiltered, isSearched } = this;
    const palettes = colours.spans;
    const strips = [
      [spans.drawn(lane), isFiltered || isSearched ? palettes.dim : palettes.normal],
      [isFiltered ? spans.kept(lane) : null, isSearched ? colours.quiet : palettes.normal],
      [isSearched ? spans.found(lane) : null, palettes.hits],
    ] as const;
    return strips.flatMap(([strip, palette]) => (strip ? [[strip, palette] as const] : []));
  }

  // The steps are those of the process of what is selected, else of the first one that can be seen.
  private processOfRuler(): number {
    for (const process of this.processesInView()) if (this.stepsByProcess.has(process)) return process;
    return this.stepsByProcess.keys().next().value ?? -1;
  }

  private *processesInView(): Generator<number> {
    yield parsedStep(step.value)?.process ?? -1;
    const span = chosen.value === null ? undefined : this.spans.known(chosen.value);
    for (const track of [...(span ? [span.track] : []), ...(this.drag?.tracks ?? selectedTracks.value ?? [])]) {
      yield this.tracks.track(track)?.process ?? -1;
    }
    const rows = this.visible().map(at => this.layout.rows[at]);
    const focused = this.focus.peek()?.key;
    for (const row of rows) if (row.key === focused) yield row.process;
    for (const row of rows) yield row.process;
  }

  rulerContent(): RulerContent {
    return { view: this.view.now, steps: this.steps, step: step.value, flags: this.flags, time: this.drag?.time ?? selectedTime.value, mark: mark.value };
  }

  private drawOver(canvas: HTMLCanvasElement): void {
    const focus = this.focus.peek();
    const at = focus ? this.layout.rows.findIndex(row => row.key === focus.key) : -1;
    const row: Box | null = at < 0 ? null : { x: 0, y: this.topOf(at), width: this.width, height: this.layout.rows[at].height };
    const isSpan = focus !== null && focus.row >= 0 && at >= 0 && this.layout.rows[at].lane !== null;
    drawOverlay(canvas, devicePixelRatio, {
      width: this.width,
      height: this.height,
      time: this.drag?.time ?? selectedTime.value,
      selected: this.selectedRows(),
      mark: mark.value,
      chosen: chosen.value === null ? null : this.boxOf(this.spans.known(chosen.value)),
      links: this.linkBoxes(),
      focus: { row, span: isSpan ? this.boxOf(this.spans.known(focus.row)) : null },
      pinnedHeight: this.layout.pinnedHeight,
      x: ns => this.x(ns),
    });
  }

  private selectedRows(): { top: number; height: number }[] {
    const wanted = this.drag ? this.drag.tracks : selectedTracks.value;
    if (!wanted) return [{ top: 0, height: this.height }];
    const isWanted = new Set(wanted);
    return this.visible()
      .filter(at => isWanted.has(this.layout.rows[at].track))
      .map(at => ({ top: this.topOf(at), height: this.layout.rows[at].height }));
  }

  private linkBoxes(): { from: Box; to: Box }[] {
    const story = chosen.value === null ? undefined : this.spans.story(chosen.value);
    if (!story?.links.length) return [];
    const own = this.boxOf(story.span);
    return story.links.flatMap(({ isFrom, other }) => {
      const box = this.boxOf(other);
      return own && box ? [isFrom ? { from: own, to: box } : { from: box, to: own }] : [];
    });
  }
}

// A counter as steps with the area below them, one look-up a pixel.
function drawSeries(context: CanvasRenderingContext2D, series: Series, [from, to]: Stretch, width: number, top: number, height: number, scale: number): void {
  context.save();
  context.scale(scale, scale);
  const y = (value: number) => top + height - 3 - ((value - series.least) / (series.most - series.least)) * (height - 8);
  const base = y(Math.max(0, series.least));
  const [r, g, b] = rgbOf(colour("bar"));
  context.fillStyle = `rgba(${r}, ${g}, ${b}, 0.3)`;
  context.strokeStyle = colour("bar");
  context.lineWidth = 1.2;
  context.beginPath();
  let isEmpty = true;
  for (let px = 0; px < width; px++) {
    const until = from + ((px + 1) / width) * (to - from);
    const at = firstAtLeast(series.at, until) - 1;
    if (at < 0) continue;
    const value = y(series.value[at]);
    if (isEmpty) context.moveTo(px, value);
    else context.lineTo(px, value);
    isEmpty = false;
    context.fillRect(px, Math.min(value, base), 1, Math.abs(base - value));
  }
  context.stroke();
  context.fillStyle = colour("quiet");
  context.font = "10px system-ui, sans-serif";
  context.textBaseline = "top";
  context.fillText(printed(series, series.most), 3, top + 2);
  context.restore();
}
