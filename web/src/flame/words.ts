// What is said about a frame.

import { bytes, count, duration, percent, plural, threeDigits } from "../ui/format";
import type { FlameData, FrameAbout } from "./data";
import type { Tree } from "./tree";

const CHANCE = "no more than chance or nothing";
// 95 % of a normal distribution.
const SURE = 1.96;

export function amountIn(unit: string, value: number): string {
  if (unit === "ns") return duration(value);
  if (unit === "bytes") return bytes(value);
  return Number.isInteger(value) ? count(value) : threeDigits(value);
}

// What a frame has.
const WEIGHTS: Record<string, string> = { ns: "time", bytes: "memory" };

const signed = (value: number, text: string) => (value > 0 ? "+" : "") + text;

// The interval in which the share lies with 95 %, as Wilson gives it for so many samples.
function interval(share: number, samples: number): [number, number] {
  const square = SURE * SURE;
  const middle = (share + square / (2 * samples)) / (1 + square / samples);
  const variance = (share * (1 - share)) / samples + square / (4 * samples * samples);
  const half = (SURE / (1 + square / samples)) * Math.sqrt(variance);
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

export class Words {
  private readonly whole: number;
  private readonly samples: number;

  constructor(private readonly data: FlameData) {
    this.whole = data.whole || 1;
    this.samples = data.nodes.count[0]!;
  }

  about(tree: Tree, i: number): FrameAbout {
    return this.data.frames[tree.nodes.frame[i]!]!;
  }

  name(tree: Tree, i: number): string {
    return this.about(tree, i).label;
  }

  amount(value: number): string {
    return amountIn(this.data.unit, value);
  }

  share(value: number): string {
    return percent(value / this.whole);
  }

  // The lines below its name; `zoomed`: the frame that fills the picture.
  lines(tree: Tree, i: number, zoomed: number): string[] {
    const { place, layer, hot } = this.about(tree, i);
    const said = [layer + (place ? ` \u00b7 ${place}` : "")];
    if (tree.isGone(i)) return [...said, ...this.ofGone(tree, i)];
    said.push(this.weights(tree, i, zoomed));
    if (i || tree.side) said.push(this.counted(tree, i));
    if (hot?.length) said.push(`lines ${hot.map(([line, share]) => `${line} (${percent(share)})`).join(", ")}`);
    if (this.data.compared) said.push(...this.change(tree, i));
    return said;
  }

  private ofGone(tree: Tree, i: number): string[] {
    const lost = `gone: ${this.amount(-tree.nodes.change![i]!)} per ${this.data.compared!.per} before, nothing now`;
    return tree.nodes.sure![i] ? [lost] : [lost, CHANCE];
  }

  private weights(tree: Tree, i: number, zoomed: number): string {
    const { total, own } = tree.nodes;
    const all = this.share(total[i]!);
    if (tree.side && i) {
      const ofFunction = percent(total[i]! / total[0]!);
      return `${this.amount(total[i]!)} of ${this.name(tree, 0)}: ${ofFunction} of its ${WEIGHTS[this.data.unit] ?? "weight"}, ${all} of all`;
    }
    const isShown = !tree.side && i && zoomed && total[i]! <= total[zoomed]!;
    const shown = isShown ? `, ${percent(total[i]! / total[zoomed]!)} of what is shown` : "";
    return `${this.amount(total[i]!)}, ${all} of all${shown}; its own ${this.amount(own[i]!)}`;
  }

  private counted(tree: Tree, i: number): string {
    const { total, count: counts } = tree.nodes;
    if (!this.data.sampled) return `${plural(counts[i]!, this.data.noun)} in it`;
    const [low, high] = interval(total[i]! / this.whole, this.samples);
    return `${plural(counts[i]!, "sample")}: ${percent(low)} to ${percent(high)}${tree.side ? " of all" : ""} with 95 %`;
  }

  private change(tree: Tree, i: number): string[] {
    const { per, units } = this.data.compared!;
    const now = tree.nodes.total[i]! / units;
    const change = tree.nodes.change![i]!;
    const before = now - change;
    const part = before > 0 ? ` (${signed(change, ((100 * change) / before).toFixed(1))} %)` : " (new)";
    const said = `per ${per}: ${this.amount(now)}, before ${this.amount(before)}, ${signed(change, this.amount(change))}${part}`;
    return tree.nodes.sure![i] ? [said] : [said, CHANCE];
  }

  // What the tree says about the function whose callers and callees it shows.
  ofSandwich(tree: Tree): string {
    const thin = this.data.left_out ? "; without frames too thin to be drawn" : "";
    const [above, below] = this.data.flipped ? ["callees", "callers"] : ["callers", "callees"];
    const places = plural(tree.places, "place");
    return `${this.name(tree, 0)}: ${this.amount(tree.nodes.total[0]!)} in ${places}, ${above} above, ${below} below${thin}`;
  }
}
