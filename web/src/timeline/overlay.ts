// What lies over the picture: the selection, the mark, the chosen span with its links, the row that has
// the focus. It is drawn anew without painting the spans again.

import type { Stretch } from "../state/state";
import { colour } from "../ui/theme";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface OverlayContent {
  width: number;
  height: number;
  time: Stretch | null;
  selected: { top: number; height: number }[]; // the rows that the selection touches
  mark: Stretch | null;
  chosen: Box | null;
  links: { from: Box; to: Box }[];
  focus: { row: Box | null; span: Box | null };
  pinnedHeight: number;
  x: (ns: number) => number;
}

export function drawOverlay(canvas: HTMLCanvasElement, scale: number, content: OverlayContent): void {
  const { width, height } = content;
  canvas.width = Math.max(1, Math.round(width * scale));
  canvas.height = Math.max(1, Math.round(height * scale));
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  drawSelection(context, content);
  drawMark(context, content);
  if (content.pinnedHeight) line(context, colour("text"), 0, content.pinnedHeight - 0.5, width, content.pinnedHeight - 0.5);
  if (content.focus.row) outline(context, content.focus.row, colour("accent"), [2, 3], 1);
  for (const link of content.links) drawLink(context, link.from, link.to);
  if (content.chosen) {
    outline(context, content.chosen, colour("back"), [], 4);
    outline(context, content.chosen, colour("text"), [], 2);
  }
  if (content.focus.span) {
    outline(context, content.focus.span, colour("back"), [], 2);
    outline(context, content.focus.span, colour("accent"), [4, 2], 2);
  }
}

function drawSelection(context: CanvasRenderingContext2D, { time, selected, x, width }: OverlayContent): void {
  if (!time) return;
  const [left, right] = [Math.max(-2, x(time[0])), Math.min(width + 2, x(time[1]))];
  if (right < -1 || left > width + 1) return;
  context.fillStyle = colour("accent");
  for (const { top, height } of selected) {
    context.globalAlpha = 0.16;
    context.fillRect(left, top, Math.max(1, right - left), height);
    context.globalAlpha = 1;
    context.fillRect(left, top, 1.5, height);
    context.fillRect(right - 1.5, top, 1.5, height);
  }
}

function drawMark(context: CanvasRenderingContext2D, { mark, x, width, height }: OverlayContent): void {
  for (const at of mark ?? []) {
    const place = Math.round(x(at)) + 0.5;
    if (place >= 0 && place <= width) line(context, colour("mark"), place, 0, place, height, 1.5);
  }
}

function line(context: CanvasRenderingContext2D, stroke: string, x0: number, y0: number, x1: number, y1: number, width = 1): void {
  context.strokeStyle = stroke;
  context.lineWidth = width;
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

function outline(context: CanvasRenderingContext2D, box: Box, stroke: string, dash: number[], width: number): void {
  context.strokeStyle = stroke;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.strokeRect(box.x, box.y, Math.max(box.width, 2), box.height - 1);
  context.setLineDash([]);
}

// An arrow from the end of one span to the start of the other; straight down to one that lies inside.
function drawLink(context: CanvasRenderingContext2D, from: Box, to: Box): void {
  const isInside = to.x >= from.x - 1 && to.x + to.width <= from.x + from.width + 1 && to.y > from.y;
  const path = isInside ? down(from, to) : across(from, to);
  for (const [stroke, width] of [[colour("back"), 4], [colour("text"), 1.5]] as const) {
    context.strokeStyle = stroke;
    context.lineWidth = width;
    context.stroke(path);
  }
}

function down(from: Box, to: Box): Path2D {
  const [x, y0, y1] = [to.x + to.width / 2, from.y + from.height - 4, to.y + 4];
  return new Path2D(`M ${x} ${y0} L ${x} ${y1} M ${x - 4} ${y1 - 5} L ${x} ${y1} L ${x + 4} ${y1 - 5}`);
}

function across(from: Box, to: Box): Path2D {
  const [x0, y0] = [from.x + from.width, from.y + from.height / 2];
  const [x1, y1] = [to.x, to.y + to.height / 2];
  const bend = Math.min(120, Math.max(30, Math.abs(x1 - x0) / 2));
  return new Path2D(`M ${x0} ${y0} C ${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1} M ${x1 - 7} ${y1 - 4} L ${x1} ${y1} L ${x1 - 7} ${y1 + 4}`);
}
