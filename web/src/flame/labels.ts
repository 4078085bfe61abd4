// What is written on the frames that have room for it.

import type { FrameAbout } from "./data";
import { svgElement } from "./painter";

const FEWEST_LETTERS = 3;
const SIDES_PX = 6;
const BEGIN_PX = 4;
const ABOVE_FOOT_PX = 5;
// Until it is measured.
const LETTER_PX = 7.25;
const MEASURED_LETTERS = 50;

export class Labels {
  private texts = new Map<number, SVGElement>();
  private letterPx = LETTER_PX;

  constructor(private readonly holder: SVGElement) {
    holder.replaceChildren();
    this.measure();
  }

  private measure(): void {
    const probe = svgElement("text") as SVGTextElement;
    probe.textContent = "m".repeat(MEASURED_LETTERS);
    this.holder.append(probe);
    this.letterPx = probe.getComputedTextLength() / MEASURED_LETTERS || LETTER_PX;
    probe.remove();
  }

  clear(): void {
    this.holder.replaceChildren();
    this.texts = new Map();
  }

  // The longest form of a label that there is room for; the shortest is cut.
  fitted(about: FrameAbout, px: number): string {
    const room = Math.floor((px - SIDES_PX) / this.letterPx);
    if (room < FEWEST_LETTERS) return "";
    const forms = [about.label, ...(about.shorter ?? [])];
    const shortest = forms[forms.length - 1]!;
    return forms.find(words => words.length <= room) ?? `${shortest.slice(0, room - 1)}\u2026`;
  }

  write(i: number, words: string, x: number, foot: number, isHit: boolean): void {
    let text = this.texts.get(i);
    if (!words) {
      text?.remove();
      this.texts.delete(i);
      return;
    }
    if (!text) {
      text = svgElement("text", { y: foot - ABOVE_FOOT_PX });
      if (isHit) text.classList.add("hit");
      this.holder.append(text);
      this.texts.set(i, text);
    }
    text.setAttribute("x", (x + BEGIN_PX).toFixed(2));
    text.textContent = words;
  }

  mark(hits: ReadonlySet<number> | null): void {
    for (const [i, text] of this.texts) text.classList.toggle("hit", Boolean(hits?.has(i)));
  }
}
