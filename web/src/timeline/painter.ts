// Paints rows of strips into the pixels of one canvas: each row once as a line of pixels, which is
// copied down. A million spans cost one binary search a pixel.

import { DARK, Edge, LIGHT, type Palette } from "./palette";
import { firstAtLeast, type Strip } from "./strips";

// In device pixels: narrower spans have no text, and no line between them and the next.
const TEXT_PX = 26;
const GAP_PX = 4;

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private image: ImageData | null = null;
  private pixels = new Uint32Array(0);
  private normal = new Uint32Array(0);
  private top = new Uint32Array(0);
  private bottom = new Uint32Array(0);
  private readonly texts: number[] = []; // code, colour, x, y, width, height of each
  private readonly textWidths = new Map<string, number>();
  width = 0;
  height = 0;
  scale = 1;

  constructor(readonly canvas: HTMLCanvasElement) {
    this.context = canvas.getContext("2d", { alpha: false })!;
  }

  // A new picture of this size in CSS pixels.
  begin(width: number, height: number, scale: number, background: number): void {
    const [w, h] = [Math.max(1, Math.round(width * scale)), Math.max(1, Math.round(height * scale))];
    if (!this.image || w !== this.width || h !== this.height) {
      this.canvas.width = this.width = w;
      this.canvas.height = this.height = h;
      this.image = this.context.createImageData(w, h);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.normal = new Uint32Array(w);
      this.top = new Uint32Array(w);
      this.bottom = new Uint32Array(w);
    }
    if (scale !== this.scale) this.textWidths.clear();
    this.scale = scale;
    this.texts.length = 0;
    this.pixels.fill(background);
  }

  // One row at `y` with this height, clipped to what is below `clip`; all in CSS pixels.
  // Strips are painted over each other, each with its palette.
  row(strips: readonly (readonly [Strip, Palette])[], y: number, height: number, clip: number, view: readonly [number, number], background: number): void {
    const first = Math.round(y * this.scale);
    const last = Math.min(this.height, Math.round((y + height) * this.scale) - 1);
    const from = Math.max(first, Math.round(clip * this.scale), 0);
    if (last <= from) return;
    this.normal.fill(background);
    this.top.fill(background);
    this.bottom.fill(background);
    for (const [strip, palette] of strips) this.line(strip, palette, view, from === first ? first : -1, last - first);
    const edge = Math.max(1, Math.round(2 * this.scale));
    for (let at = from; at < last; at++) {
      const line = at - first < edge ? this.top : last - at <= edge ? this.bottom : this.normal;
      this.pixels.set(line, at * this.width);
    }
  }

  private line({ start, end, reach, codes }: Strip, palette: Palette, view: readonly [number, number], y: number, height: number): void {
    const { normal, top, bottom, width } = this;
    const { fill, edge, edges } = palette;
    const [from, to] = view;
    const perNs = width / (to - from);
    const hasText = palette.text !== null && y >= 0 && height >= 12 * this.scale;
    const count = start.length;
    let at = firstAtLeast(reach, from);
    while (at < count && start[at] < to) {
      const left = Math.max(0, Math.floor((start[at] - from) * perNs));
      const right = Math.min(width, Math.floor((end[at] - from) * perNs));
      const code = codes[at];
      const kind = edges[code];
      if (right <= left) {
        normal[left] = fill[code];
        top[left] = kind & Edge.Top ? edge[code] : fill[code];
        bottom[left] = kind & Edge.Bottom ? edge[code] : fill[code];
        at = firstAtLeast(reach, from + (left + 1) / perNs, at + 1);
        continue;
      }
      const until = right - left >= GAP_PX && right < width ? right - 1 : right;
      normal.fill(fill[code], left, until);
      top.fill(kind & Edge.Top ? edge[code] : fill[code], left, until);
      bottom.fill(kind & Edge.Bottom ? edge[code] : fill[code], left, until);
      if (kind & Edge.Dotted) for (let x = left; x < until; x++) if (x & 4) bottom[x] = edge[code];
      if (hasText && until - left >= TEXT_PX * this.scale) this.texts.push(code, palette.text![code] === LIGHT ? 1 : 0, left, y, until - left, height);
      at++;
    }
  }

  // Put the pixels on the canvas, and the texts on them.
  end(nameOf: (code: number) => string): CanvasRenderingContext2D {
    const { context, scale } = this;
    context.putImageData(this.image!, 0, 0);
    context.font = `${Math.round(11 * scale)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const isLight of [0, 1]) {
      context.fillStyle = isLight ? LIGHT : DARK;
      for (let at = 0; at < this.texts.length; at += 6) {
        if (this.texts[at + 1] !== isLight) continue;
        const [code, , x, y, width, height] = this.texts.slice(at, at + 6);
        const text = this.fitting(nameOf(code), width - 8 * scale);
        if (text) context.fillText(text, x + 4 * scale, y + height / 2 + scale / 2);
      }
    }
    return context;
  }

  // As much of a text as there is room for.
  private fitting(text: string, room: number): string {
    const short = text.length > 200 ? text.slice(0, 200) : text;
    let width = this.textWidths.get(short);
    if (width === undefined) this.textWidths.set(short, (width = this.context.measureText(short).width));
    if (width <= room) return short;
    const letters = Math.floor((short.length * room) / width) - 1;
    return letters >= 2 ? `${short.slice(0, letters)}\u2026` : "";
  }
}
