// The flame graph of some of the samples of a recording, built in the browser: the same numbers as
// analyse/stacks/graphs.py gives for the same stretch of time.

import type { NumberColumn } from "../data/blocks";
import type { Recording } from "../data/recording";
import { partInside } from "../data/statistics";
import { type Choice, isChosenPlace, isInside, OUTSIDE } from "./choice";
import { mergedTree, NONE, type FrameTree, Weighed } from "./frame_tree";
import { type By, type Groups, groupsBy } from "./groups";
import { type RuleFrame, type Rules, rulesOf } from "./rules";
import { hasAbove, shownStacks } from "./shown_stacks";

export const SAMPLE_KINDS: Record<string, readonly string[]> = {
  cpu: ["cpu"],
  offcpu: ["offcpu"],
  wall: ["cpu", "offcpu"],
  pagefaults: ["fault"],
};
const COUNTED = "pagefaults"; // weighs its samples by their number
const WAIT = "offcpu";

export interface Built {
  tree: FrameTree;
  frames: readonly RuleFrame[];
  idle: number; // what was left out because threads of pools waited without work
}

export async function fromSamples(recording: Recording, kind: string, choice: Choice, layers: ReadonlySet<string> | null, by: By): Promise<Built> {
  const [rules, names, columns, steps] = await Promise.all([
    rulesOf(recording),
    recording.json<{ kinds: string[]; states: string[] }>("sample_names"),
    recording.columns("samples"),
    recording.columns("flame steps"),
  ]);
  const samples: Samples = { columns, step: steps["step"]!, kinds: names.kinds };
  const groups = groupsBy(by, rules.about, samples.columns["track"]!, samples.step);
  const nodes = new WaitNodes(rules, names.states);
  const { weighed, idle } = weigh(rules, samples, kind, choice, groups, nodes);
  const shown = shownStacks(rules, nodes.stacked(), layers);
  const moved = new Weighed(groups.labels.length);
  weighed.node.forEach((node, i) => moved.add(shown.into[node]!, weighed.group[i]!, weighed.own[i]!, weighed.count[i]!));
  const frames = [...rules.about.frames, ...groups.labels.map(groupFrame)];
  const roots = groups.labels.map((_, group) => rules.about.frames.length + group);
  return { tree: mergedTree(shown, moved, roots, frames.length), frames, idle };
}

export function groupFrame(label: string): RuleFrame {
  return { name: label, label, place: "", layer: "other", colour: "other" };
}

interface Samples {
  columns: Record<string, NumberColumn>;
  step: NumberColumn; // 1 + the step; 0: none
  kinds: string[];
}

// The stacks, one for samples whose stack is not known, and behind them a node for each way to wait.
class WaitNodes {
  readonly unknown: number;
  private readonly up: number[] = [];
  private readonly frame: number[] = [];
  private readonly known = new Map<number, number>();

  constructor(
    private readonly rules: Rules,
    private readonly states: readonly string[],
  ) {
    this.unknown = rules.stacks.up.length;
  }

  wait(stack: number, state: number, isIdle: boolean): number {
    const key = (stack * this.states.length + state) * 2 + Number(isIdle);
    let node = this.known.get(key);
    if (node === undefined) {
      node = this.unknown + this.up.push(stack);
      this.frame.push(this.rules.about.waits[this.states[state]!]![Number(isIdle)]!);
      this.known.set(key, node);
    }
    return node;
  }

  stacked(): { up: Int32Array; frame: Int32Array } {
    const { up, frame } = this.rules.stacks;
    return {
      up: Int32Array.from([...up, NONE, ...this.up]),
      frame: Int32Array.from([...frame, this.rules.about.unknown, ...this.frame]),
    };
  }
}

function weigh(rules: Rules, samples: Samples, kind: string, choice: Choice, groups: Groups, nodes: WaitNodes): { weighed: Weighed; idle: number } {
  const { columns, step, kinds } = samples;
  const column = (name: string) => columns[name]!;
  const [track, at, stack, state, isIdle, counts] = ["track", "at", "stack", "state", "idle", "count"].map(column) as NumberColumn[];
  const weights = kind === COUNTED ? counts! : column("weight");
  const isWanted = kinds.map(name => SAMPLE_KINDS[kind]!.includes(name));
  const isWait = kinds.map(name => name === WAIT);
  const isBelow = chosenStacks(rules, choice);
  const weighed = new Weighed(groups.labels.length);
  let idle = 0;
  for (let row = 0; row < weights.length; row++) {
    const ofKind = column("kind")[row]!;
    const wait_ns = isWait[ofKind] ? weights[row]! : 0;
    if (!isWanted[ofKind] || !isChosenPlace(choice, track![row]!, at![row]!, step[row]! - 1, wait_ns)) continue;
    const weight = isWait[ofKind] && choice.time ? partInside(choice.time, at![row]!, wait_ns) : weights[row]!;
    const place = stack![row] ? rules.place(stack![row]! - 1) : NONE;
    if (!isBelow(place)) continue;
    if (isIdle![row]) {
      idle += weight;
      continue;
    }
    const known = place === NONE ? nodes.unknown : place;
    const node = isWait[ofKind] ? nodes.wait(known, state![row]!, false) : known;
    weighed.add(node, groups.of(row), weight, Number(counts![row]! > 0));
  }
  return { weighed, idle };
}

// Whether a stack is in the module, and below a frame of the name, that are chosen.
function chosenStacks(rules: Rules, choice: Choice): (place: number) => boolean {
  const { up, frame } = rules.stacks;
  const tests: ((place: number) => boolean)[] = [];
  const nameOf = (node: number) => rules.about.frames[frame[node]!]!.name;
  const modules = rules.layerCalled("modules");
  if (choice.module === OUTSIDE) {
    const hasModule = hasAbove(up, node => rules.layer[frame[node]!] === modules);
    tests.push(place => !hasModule(place));
  } else if (choice.module) tests.push(hasAbove(up, node => rules.layer[frame[node]!] === modules && isInside(nameOf(node), choice.module)));
  if (choice.name) tests.push(hasAbove(up, node => nameOf(node) === choice.name));
  return place => tests.every(test => test(place));
}
