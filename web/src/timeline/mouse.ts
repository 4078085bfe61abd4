// The mouse on the picture and its ruler: wheel, drag, click.

import { holdsStep, parsedStep, stepLabel } from "../data/steps";
import { chosen, type Stretch, step } from "../state/state";
import type { Actions } from "./actions";
import type { Picture } from "./picture";
import { pointed, rulerHeight } from "./ruler";
import { padded } from "./view";

const DRAG_PX = 4;
const ZOOM_A_PIXEL = 0.002;

export interface Hover {
  x: number; // of the window
  y: number;
  lines: string[];
}

export interface Hands {
  isSpaceHeld: boolean;
  hover: (hover: Hover | null) => void;
  describe: (x: number, y: number) => string[];
}

function placeIn(element: Element, event: MouseEvent): [number, number] {
  const box = element.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

// Zoom around the mouse; with shift, or a wheel that turns sideways, go on.
export function onWheel(picture: Picture, canvas: Element, event: WheelEvent): void {
  event.preventDefault();
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : event.deltaMode === WheelEvent.DOM_DELTA_PAGE ? picture.height : 1;
  const isSideways = event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY);
  if (isSideways) picture.view.pan(((event.deltaX || event.deltaY) * unit) / picture.width);
  else picture.view.zoom(Math.exp(Math.min(Math.max(event.deltaY * unit, -400), 400) * ZOOM_A_PIXEL), picture.timeAt(placeIn(canvas, event)[0]));
}

// A drag selects time and tracks; with the space bar, the middle button or a finger it moves the picture.
export function onDown(actions: Actions, canvas: HTMLElement, event: PointerEvent, hands: Hands): void {
  if (event.button > 1) return;
  const { picture } = actions;
  const isMoving = hands.isSpaceHeld || event.button === 1 || event.pointerType === "touch";
  const [x0, y0] = placeIn(canvas, event);
  const at0 = picture.timeAt(x0);
  let hasMoved = false;
  follow(canvas, event, {
    move: now => {
      const [x, y] = placeIn(canvas, now);
      hasMoved ||= Math.abs(x - x0) > DRAG_PX;
      if (!hasMoved) return;
      hands.hover(null);
      if (isMoving) picture.view.pan((at0 - picture.timeAt(x)) / (picture.view.now[1] - picture.view.now[0]));
      else {
        picture.drag = actions.areaOf(sorted(at0, picture.timeAt(Math.min(Math.max(x, 0), picture.width))), y0, y);
        picture.draw(false);
      }
    },
    up: () => {
      const area = picture.drag;
      picture.drag = null;
      if (!hasMoved) click(actions, x0, y0);
      else if (area) actions.select(area);
    },
    cancel: () => {
      picture.drag = null;
      picture.draw(false);
    },
  });
}

function click(actions: Actions, x: number, y: number): void {
  const found = actions.picture.pointed(x, y);
  if (found && found.item >= 0 && found.row.waits) actions.picture.focus.value = { key: found.row.key, row: found.item };
  else if (found && found.item >= 0) void actions.choose(found.item);
  else chosen.value = null;
}

export async function onDoubleClick(picture: Picture, canvas: Element, event: MouseEvent): Promise<void> {
  const found = picture.pointed(...placeIn(canvas, event));
  if (!found || found.item < 0 || found.row.waits) return;
  const { start, dur } = await picture.spans.span(found.item);
  picture.view.show(padded([start, start + dur]), true);
}

// On the ruler a drag moves the picture; a click on a step selects it, a second one lets it go.
export function onRulerDown(picture: Picture, ruler: HTMLElement, event: PointerEvent): void {
  if (event.button > 1) return;
  const [x0, y0] = placeIn(ruler, event);
  const at0 = picture.timeAt(x0);
  let hasMoved = false;
  follow(ruler, event, {
    move: now => {
      const [x] = placeIn(ruler, now);
      hasMoved ||= Math.abs(x - x0) > DRAG_PX;
      if (hasMoved) picture.view.pan((at0 - picture.timeAt(x)) / (picture.view.now[1] - picture.view.now[0]));
    },
    up: () => {
      const found = hasMoved ? null : pointed(picture.rulerContent(), picture.width, x0, y0);
      if (found && "step" in found) step.value = holdsStep(parsedStep(step.value), found) ? "" : found.address;
    },
    cancel: () => {},
  });
}

export function rulerText(picture: Picture, x: number, y: number): string[] {
  if (y > rulerHeight(picture.hasSteps, picture.flags)) return [];
  const found = pointed(picture.rulerContent(), picture.width, x, y);
  if (!found) return [];
  return "step" in found ? [`${stepLabel(found.address, picture.tracks.stepProcesses)}${found.warmup ? ", warm-up" : ""}`] : [found.name, found.kind];
}

function sorted(a: number, b: number): Stretch {
  return a < b ? [a, b] : [b, a];
}

interface Following {
  move: (event: PointerEvent) => void;
  up: () => void;
  cancel: () => void;
}

function follow(on: HTMLElement, down: PointerEvent, { move, up, cancel }: Following): void {
  on.setPointerCapture(down.pointerId);
  const end = (done: () => void) => () => {
    on.removeEventListener("pointermove", move);
    on.removeEventListener("pointerup", onUp);
    on.removeEventListener("pointercancel", onCancel);
    done();
  };
  const onUp = end(up);
  const onCancel = end(cancel);
  on.addEventListener("pointermove", move);
  on.addEventListener("pointerup", onUp);
  on.addEventListener("pointercancel", onCancel);
}
