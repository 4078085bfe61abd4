// The ruler above the picture: time, steps by their numbers, what the program marked, and the mark.

import { holdsStep, parsedStep } from "../data/steps";
import type { Stretch } from "../state/state";
import type { Step } from "../data/tracks";
import { duration } from "../ui/format";
import { colour } from "../ui/theme";

export interface Flag {
  at: number;
  name: string;
  kind: string;
}

export interface RulerContent {
  view: Stretch;
  steps: readonly Step[]; // of one process, by start
  step: string;
  flags: readonly Flag[];
  time: Stretch | null;
  mark: Stretch | null;
}

export const TICKS_PX = 20;
export const STEPS_PX = 18;
export const FLAGS_PX = 16;

export function rulerHeight(hasSteps: boolean, flags: readonly Flag[]): number {
  return TICKS_PX + (hasSteps ? STEPS_PX : 0) + (flags.length ? FLAGS_PX : 0);
}

export function drawRuler(canvas: HTMLCanvasElement, width: number, scale: number, content: RulerContent): void {
  const height = rulerHeight(content.steps.length > 0, content.flags);
  // As wide as the picture, which a scroll bar may make narrower.
  canvas.style.width = `${width}px`;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.fillStyle = colour("raised");
  context.fillRect(0, 0, width, height);
  const x = (ns: number) => ((ns - content.view[0]) / (content.view[1] - content.view[0])) * width;
  drawStretch(context, content.time, x, width, height, colour("accent"), "");
  drawTicks(context, content.view, x, width);
  if (content.steps.length) drawSteps(context, content, x, width);
  if (content.flags.length) drawFlags(context, content, x, width, height - FLAGS_PX);
  drawStretch(context, content.mark, x, width, height, colour("mark"), content.mark ? duration(content.mark[1] - content.mark[0]) : "");
}

function drawStretch(context: CanvasRenderingContext2D, of: Stretch | null, x: (ns: number) => number, width: number, height: number, fill: string, label: string): void {
  if (!of) return;
  const [left, right] = [Math.max(-2, x(of[0])), Math.min(width + 2, x(of[1]))];
  if (right < 0 || left > width) return;
  context.fillStyle = fill;
  context.globalAlpha = 0.3;
  context.fillRect(left, 0, Math.max(1, right - left), height);
  context.globalAlpha = 1;
  context.fillRect(left, 0, 1.5, height);
  context.fillRect(right - 1.5, 0, 1.5, height);
  if (!label) return;
  const room = context.measureText(label).width + 8;
  const at = Math.min(Math.max((left + right - room) / 2, 0), width - room);
  context.fillRect(at, 2, room, TICKS_PX - 4);
  context.fillStyle = colour("back");
  context.fillText(label, at + 4, TICKS_PX / 2);
}

const STEPS_OF_TEN = [1, 2, 5, 10];

function tickOf(ns: number): number {
  const ten = 10 ** Math.floor(Math.log10(ns));
  return Math.max(1, ten * STEPS_OF_TEN.find(one => one * ten >= ns)!);
}

function drawTicks(context: CanvasRenderingContext2D, [from, to]: Stretch, x: (ns: number) => number, width: number): void {
  const tick = tickOf(((to - from) * 110) / width);
  context.fillStyle = colour("text");
  for (let at = Math.ceil(from / tick) * tick; at < to; at += tick) {
    context.fillRect(Math.round(x(at)), 0, 1, TICKS_PX - 4);
    context.fillText(moment(at, tick), Math.round(x(at)) + 4, TICKS_PX / 2 - 1);
  }
}

// A moment with as many digits as tell it from the next tick.
export function moment(ns: number, tick: number): string {
  const digits = Math.max(0, 9 - Math.floor(Math.log10(tick) + 1e-9));
  return `${(ns / 1e9).toFixed(Math.min(9, digits))} s`;
}

function drawSteps(context: CanvasRenderingContext2D, { view, steps, step }: RulerContent, x: (ns: number) => number, width: number): void {
  const [bar, pale, text, accent] = [colour("line"), colour("warm"), colour("text"), colour("accent")];
  const filter = parsedStep(step);
  let next = -1;
  for (let at = firstVisible(steps, view[0]); at < steps.length && steps[at].start < view[1]; at++) {
    const one = steps[at];
    const [left, right] = [Math.max(0, x(one.start)), Math.min(width, x(one.start + one.dur))];
    if (right < next) continue; // within one pixel
    next = Math.floor(left) + 1;
    const isChosen = holdsStep(filter, one);
    context.fillStyle = isChosen ? accent : one.warmup ? pale : bar;
    context.globalAlpha = isChosen || at % 2 ? 0.9 : 0.55;
    context.fillRect(left, TICKS_PX, Math.max(1, right - left - 1), STEPS_PX - 2);
    context.globalAlpha = 1;
    const label = right - left > 58 ? `step ${one.step}` : String(one.step);
    if (context.measureText(label).width > right - left - 6) continue;
    context.fillStyle = isChosen ? colour("on-accent") : text;
    context.fillText(label, left + 3, TICKS_PX + STEPS_PX / 2 - 1);
  }
}

function firstVisible(steps: readonly Step[], time: number): number {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].start + steps[middle].dur < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawFlags(context: CanvasRenderingContext2D, { view, flags }: RulerContent, x: (ns: number) => number, width: number, top: number): void {
  context.fillStyle = colour("text");
  let next = -Infinity;
  for (const flag of flags) {
    if (flag.at < view[0] || flag.at > view[1]) continue;
    const left = x(flag.at);
    context.fillRect(left, top, 1, FLAGS_PX);
    context.beginPath();
    context.moveTo(left, top + 1);
    context.lineTo(left + 7, top + 4);
    context.lineTo(left, top + 7);
    context.fill();
    const label = flag.name.slice(0, 60);
    if (left < next) continue;
    context.fillText(label, left + 9, top + FLAGS_PX / 2, Math.max(20, width - left - 9));
    next = left + 14 + context.measureText(label).width;
  }
}

// The step, or what was marked, under a place of the ruler.
export function pointed(content: RulerContent, width: number, px: number, py: number): Step | Flag | null {
  const perPx = (content.view[1] - content.view[0]) / width;
  const at = content.view[0] + px * perPx;
  const inSteps = content.steps.length > 0 && py >= TICKS_PX && py < TICKS_PX + STEPS_PX;
  if (inSteps) return content.steps.find(one => one.start <= at && at < one.start + one.dur) ?? null;
  const bottom = rulerHeight(content.steps.length > 0, content.flags);
  if (!content.flags.length || py < bottom - FLAGS_PX) return null;
  return content.flags.filter(one => one.at <= at + perPx && at - one.at <= 80 * perPx).at(-1) ?? null;
}
