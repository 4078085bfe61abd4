// Colours of spans: of each layer one hue, within it by the name. Text stands on them in black or
// white, whichever can be read; the lines at the edges tell layers apart without colour.

import type { SpanAbout } from "../data/spans";
import { colour } from "../ui/theme";

// Bits: lines along the top, along the bottom, dots along the bottom.
export const Edge = { Plain: 0, Top: 1, Bottom: 2, Dotted: 4 } as const;
export const [DARK, LIGHT] = ["#000000", "#ffffff"] as const;

// The edges of each layer; the legend shows them too (timeline.css).
const EDGES: Record<string, number> = { modules: Edge.Top, primitives: Edge.Top | Edge.Bottom, api: Edge.Bottom, ranges: Edge.Dotted, runtime: Edge.Top | Edge.Dotted, python: Edge.Bottom };

// What a strip is painted with, by code. Pixels are 0xAABBGGRR, as ImageData has them.
export interface Palette {
  fill: Uint32Array;
  edge: Uint32Array;
  edges: Uint8Array;
  text: (string | null)[] | null; // the colour of the text of each code; null: nothing is written
}

type Rgb = readonly [number, number, number];

export function rgbOf(hex: string): Rgb {
  const value = parseInt(hex.slice(1), 16);
  return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

export function pixelOf([r, g, b]: Rgb): number {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

// A number that depends on all of a text, the same everywhere: -1 to 1.
export function hashed(text: string): number {
  let hash = 2166136261;
  for (let at = 0; at < Math.min(text.length, 500); at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16777619);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 0x2c1b3c6d);
  return ((hash ^ (hash >>> 13)) >>> 0) / 2 ** 31 - 1;
}

// Of a layer's colour the one of a name: somewhat lighter or darker, its hue a little to the side.
function varied(base: Rgb, name: string): Rgb {
  const lighter = hashed(name) * 0.16;
  const turned = hashed(`${name} hue`) * 0.09;
  const [r, g, b] = [base[0] * (1 + turned), base[1], base[2] * (1 - turned)];
  const toward = lighter > 0 ? 255 : 0;
  return [r, g, b].map(part => Math.round(Math.min(255, part + (toward - part) * Math.abs(lighter)))) as unknown as Rgb;
}

function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map(part => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Black or white: one of them has a contrast of at least 4.58 to any colour.
function textOn(rgb: Rgb): string {
  return luminance(rgb) > 0.179 ? DARK : LIGHT;
}

function mixed(a: Rgb, b: Rgb, share: number): Rgb {
  return a.map((part, at) => Math.round(part + (b[at] - part) * share)) as unknown as Rgb;
}

export interface Palettes {
  normal: Palette;
  dim: Palette; // what a filter leaves out
  hits: Palette; // what the search found
  background: number;
}

export function spanPalettes(about: SpanAbout): Palettes {
  const { classes, layers, names } = about;
  const back = rgbOf(colour("back"));
  const bases = layers.map(layer => rgbOf(colour(`layer-${layer}`)));
  const fills = classes.map(([name, , layer]) => varied(bases[layer], names[name]));
  const edges = Uint8Array.from(classes, of => EDGES[layers[of[2]]] ?? Edge.Plain);
  const hit = rgbOf(colour("hit"));
  return {
    normal: palette(fills, fills.map(darker), edges, true),
    dim: palette(fills.map(fill => mixed(fill, back, 0.78)), fills.map(fill => mixed(fill, back, 0.55)), edges, false),
    hits: palette(fills.map(() => hit), fills.map(darker), edges, true),
    background: pixelOf(back),
  };
}

const darker = (fill: Rgb) => mixed(fill, luminance(fill) > 0.179 ? [0, 0, 0] : [255, 255, 255], 0.5);

function palette(fills: Rgb[], lines: Rgb[], edges: Uint8Array, hasText: boolean): Palette {
  return {
    fill: Uint32Array.from(fills, pixelOf),
    edge: Uint32Array.from(lines, pixelOf),
    edges,
    text: hasText ? fills.map(textOn) : null,
  };
}

// Waits by their state: what the kernel made a thread wait for stands apart from what it asked for.
const WAIT_COLOURS: Record<string, string> = { preempted: "wait-preempted", page_fault: "wait-fault", unknown: "wait-unknown", file: "wait-input", pipe: "wait-input", socket: "wait-input" };

export function waitColour(state: string): string {
  return WAIT_COLOURS[state] ?? "wait-other";
}

// The second half is of those that were not measured from end to end: a line with a dark head.
export function waitPalette(states: readonly string[]): Palette {
  const fills = [...states, ...states].map(state => rgbOf(colour(waitColour(state))));
  const edges = Uint8Array.from(fills, (_, code) => (code < states.length ? Edge.Plain : Edge.Top));
  const head = rgbOf(colour("text"));
  return { ...palette(fills, fills.map(() => head), edges, false), text: null };
}
