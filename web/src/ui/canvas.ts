// A canvas as wide as its place: drawn when what it shows changes, and when the window does.

import { type RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { theme } from "./theme";

// A reference for a canvas that `draw` fills; `of`: what it draws.
export function useCanvas(draw: (canvas: HTMLCanvasElement) => void, of: readonly unknown[]): RefObject<HTMLCanvasElement | null> {
  const canvas = useRef<HTMLCanvasElement | null>(null);
  // At once: who prints does not wait for the next picture.
  useLayoutEffect(() => {
    const redraw = () => canvas.current && draw(canvas.current);
    redraw();
    addEventListener("resize", redraw);
    return () => removeEventListener("resize", redraw);
  }, [...of, theme.value]);
  return canvas;
}

// What is only for paper has no width on the screen.
const PAPER_PX = 720;

// An empty canvas of this height in CSS pixels, sharp on every screen, and its width.
export function emptied(canvas: HTMLCanvasElement, height: number): { context: CanvasRenderingContext2D; width: number } {
  const scale = devicePixelRatio;
  const width = canvas.clientWidth || PAPER_PX;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext("2d")!;
  context.scale(scale, scale);
  return { context, width };
}
