// The stretch of time that the picture shows. It moves here at once; the address learns of it when it
// has come to rest, because browsers slow down pages that write theirs with every frame.

import { minor, type Stretch, view as viewInAddress } from "../state/state";

const LEAST_NS = 10;
const REST_MS = 120;
const MOVE_MS = 160;

export class View {
  private shown: Stretch;
  private target: Stretch | null = null;
  private timer = 0;
  private frame = 0;

  // `whole`: what `0` shows; `limits`: how far one can go; `changed` draws.
  constructor(
    readonly whole: Stretch,
    readonly limits: Stretch,
    private readonly changed: () => void,
  ) {
    this.shown = this.clamped(viewInAddress.peek() ?? whole);
  }

  get now(): Stretch {
    return this.shown;
  }

  // Where it is going: what the next key starts from.
  get aim(): Stretch {
    return this.target ?? this.shown;
  }

  // What the address says, after back or forward.
  follow(stretch: Stretch | null): void {
    const next = this.clamped(stretch ?? this.whole);
    if (this.timer || this.target || (rounded(next)[0] === rounded(this.shown)[0] && rounded(next)[1] === rounded(this.shown)[1])) return;
    this.shown = next;
    this.changed();
  }

  // Show another stretch: at once, or as a short movement where the user likes those.
  show(stretch: Stretch, isSmooth = false): void {
    const next = this.clamped(stretch);
    cancelAnimationFrame(this.frame);
    if (!isSmooth || matchMedia("(prefers-reduced-motion: reduce)").matches) {
      this.target = null;
      this.set(next);
      return;
    }
    this.target = next;
    this.move(this.shown, next, performance.now());
  }

  private move(before: Stretch, next: Stretch, since: number): void {
    this.frame = requestAnimationFrame(now => {
      const share = Math.min(1, Math.max(0, now - since) / MOVE_MS);
      const eased = 1 - (1 - share) ** 3;
      if (share === 1) this.target = null;
      this.set(share === 1 ? next : [before[0] + (next[0] - before[0]) * eased, before[1] + (next[1] - before[1]) * eased]);
      if (share < 1) this.move(before, next, since);
    });
  }

  // Make it `factor` as long, with the moment `at` staying where it is.
  zoom(factor: number, at: number, isSmooth = false): void {
    const [from, to] = isSmooth ? this.aim : this.shown;
    this.show([at - (at - from) * factor, at + (to - at) * factor], isSmooth);
  }

  // Go on by a share of what is shown.
  pan(share: number, isSmooth = false): void {
    const [from, to] = isSmooth ? this.aim : this.shown;
    const by = (to - from) * share;
    this.show([from + by, to + by], isSmooth);
  }

  stop(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    if (this.timer) this.write();
  }

  private set(next: Stretch): void {
    this.shown = next;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), REST_MS);
    this.changed();
  }

  private write(): void {
    this.timer = 0;
    const isWhole = this.shown[0] === this.whole[0] && this.shown[1] === this.whole[1];
    minor(() => (viewInAddress.value = isWhole ? null : rounded(this.shown)));
  }

  private clamped([from, to]: Stretch): Stretch {
    const [first, last] = this.limits;
    const width = Math.min(Math.max(to - from, LEAST_NS), last - first);
    const middle = (from + to) / 2;
    const start = Math.min(Math.max(middle - width / 2, first), last - width);
    return [start, start + width];
  }
}

const rounded = ([from, to]: Stretch): Stretch => [Math.round(from), Math.max(Math.round(to), Math.round(from) + 1)];

// With room on both sides, for what has to be seen with its neighbours.
export function padded([from, to]: Stretch, share = 0.1): Stretch {
  const by = Math.max((to - from) * share, 5);
  return [from - by, to + by];
}
