// The flame graph of some of the operators, primitives or work of GPUs of a recording, built in the browser: exact,
// as analyse/stacks/spans.py says.

import type { NumberColumn } from "../data/blocks";
import type { Recording } from "../data/recording";
import type { Filter } from "../data/span_store";
import { type SpanAbout, type Spans, spansOf } from "../data/spans";
import { storeOf } from "../data/store";
import { type Tracks, tracksOf } from "../data/tracks";
import { type SelectedTree, WindowSpans } from "../data/window_spans";
import { type Choice, isChosenPlace, isInModule } from "./choice";
import { mergedTree, NONE, Weighed } from "./frame_tree";
import { type Built, groupFrame } from "./from_samples";
import { type By, groupsBy } from "./groups";
import { type RuleFrame, rulesOf } from "./rules";
import { hasAbove } from "./shown_stacks";

const OPERATORS = "operators";
const PRIMITIVES = "primitives";
export const GPU = "gpu";
const SHARE = "share";
const RANGE = "range";
// By kind of link; an operator comes before the call.
const ASKING = ["launch_gpu", "operator_gpu"];
// A range around each step: its name ends with the number of the step.
const NUMBERED = /#\d+$/;

export async function fromSpans(recording: Recording, kind: string, choice: Choice, by: By): Promise<Built> {
  const [spans, tracks, details, asked, rules] = await Promise.all([
    spansOf(recording),
    tracksOf(recording),
    recording.columns("span_details"),
    recording.columns("flame asked"),
    rulesOf(recording),
  ]);
  const weight = details["weight"]!;
  const up = kind === GPU ? await belowOperators(recording, spans) : spans.parent;
  const time = new Times(spans, weight, trackOfRows(spans), choice, tracks, up);
  const isCounted = kind === GPU ? time.ofGpus() : kind === PRIMITIVES ? time.ofPrimitives() : time.ofOperators(asked["primitive"]!, asked["operator"]!);
  const groups = groupsBy(by, rules.about, time.track, spans.step);
  const weighed = new Weighed(groups.labels.length);
  for (let row = 0; row < spans.count; row++) {
    if (isCounted[row]) weighed.append(row, groups.of(row), time.ns[row]!, weight[row]!);
  }
  const { frames, ofClass } = framesOf(spans.about);
  const frame = Int32Array.from(spans.cls, cls => ofClass[cls]!);
  const roots = groups.labels.map((_, group) => frames.length + group);
  const all = [...frames, ...groups.labels.map(groupFrame)];
  return { tree: mergedTree({ up, frame }, weighed, roots, all.length), frames: all, idle: 0 };
}

// What is around each span, with work of GPUs in what asked for it, without ranges of steps.
async function belowOperators(recording: Recording, spans: Spans): Promise<Int32Array> {
  const [links, linkKinds] = await Promise.all([recording.columns("links"), recording.json<string[]>("link_kinds")]);
  const [from, distance, kind] = [links["from"]!, links["to"]!, links["kind"]!];
  const around = Int32Array.from(spans.parent);
  for (const asking of ASKING) {
    kind.forEach((one, at) => {
      if (linkKinds[one] === asking) around[from[at]! + distance[at]!] = from[at]!;
    });
  }
  const { classes, kinds, names } = spans.about;
  const isStep = classes.map(([name, kind]) => kinds[kind] === RANGE && NUMBERED.test(names[name]!));
  return around.map(row => {
    while (row !== NONE && isStep[spans.cls[row]!]) row = around[row]!;
    return row;
  });
}

// The same of a recording whose spans the server has.
export async function fromServer(recording: Recording, kind: string, choice: Choice, by: By): Promise<Built> {
  const [store, tracks, rules] = await Promise.all([storeOf(recording), tracksOf(recording), rulesOf(recording)]);
  if (!(store instanceof WindowSpans)) throw new Error("the page has the spans of this recording");
  const { classes } = store.about;
  const filter: Filter = {
    classes: choice.module ? Uint8Array.from(classes, ([, , , module]) => Number(isInModule(tracks.modulePath.get(module), choice.module))) : null,
    steps: choice.steps,
    tracks: choice.tracks && [...choice.tracks],
  };
  const found = await store.flame(kind, by === "none" || by === "step" ? by : "track", filter, choice.time, choice.name);
  const { node, key, own, parent, frame, spans } = found ?? NO_TREE;
  const keys = Uint32Array.from(key);
  const groups = groupsBy(by, rules.about, keys, keys);
  const weighed = new Weighed(groups.labels.length);
  node.forEach((one, i) => weighed.add(one, groups.of(i), own[i]!, spans[i]!));
  const { frames } = framesOf(store.about);
  const roots = groups.labels.map((_, group) => frames.length + group);
  const all = [...frames, ...groups.labels.map(groupFrame)];
  return { tree: mergedTree({ up: Int32Array.from(parent), frame: Int32Array.from(frame) }, weighed, roots, all.length), frames: all, idle: 0 };
}

const NO_TREE: SelectedTree = { parent: [], frame: [], node: [], key: [], own: [], spans: [] };

function trackOfRows(spans: Spans): Uint32Array {
  const found = new Uint32Array(spans.count);
  for (const track of spans.about.tracks) found.fill(track, ...spans.range(track));
  return found;
}

// The time of each span that is chosen, where a span counts as often as its weight says.
class Times {
  readonly ns: Float64Array;
  private readonly isPrimitive: Uint8Array;
  private readonly isOperator: Uint8Array;
  private readonly isGpu: Uint8Array;

  constructor(
    private readonly spans: Spans,
    private readonly weight: NumberColumn,
    readonly track: Uint32Array,
    choice: Choice,
    tracks: Tracks,
    up: Int32Array,
  ) {
    this.ns = new Float64Array(spans.count);
    this.isPrimitive = new Uint8Array(spans.count);
    this.isOperator = new Uint8Array(spans.count);
    this.isGpu = new Uint8Array(spans.count);
    const { layers, kinds, classes } = spans.about;
    const isOperator = classes.map(([, , layer]) => layers[layer] === OPERATORS);
    const isPrimitive = classes.map(([, kind, layer]) => layers[layer] === PRIMITIVES && kinds[kind] !== SHARE);
    const isGpu = classes.map(([, , layer]) => layers[layer] === GPU);
    const isChosen = chosenSpans(spans, choice, tracks, up);
    for (let row = 0; row < spans.count; row++) {
      if (!isChosenPlace(choice, track[row]!, spans.start[row]!, spans.step[row]! - 1) || !isChosen(row)) continue;
      const cls = spans.cls[row]!;
      this.isOperator[row] = Number(isOperator[cls]!);
      this.isPrimitive[row] = Number(isPrimitive[cls]!);
      this.isGpu[row] = Number(isGpu[cls]!);
    }
  }

  private weighted(row: number): number {
    return this.spans.self[row]! * this.weight[row]!;
  }

  ofPrimitives(): Uint8Array {
    this.isPrimitive.forEach((is, row) => is && (this.ns[row] = this.weighted(row)));
    return this.isPrimitive;
  }

  ofGpus(): Uint8Array {
    this.isGpu.forEach((is, row) => is && (this.ns[row] = this.weighted(row)));
    return this.isGpu;
  }

  // Primitives have their time, and the operator that asked for them on its thread has it no more. One
  // whose self time is shorter than that of its primitives keeps it.
  ofOperators(primitives: NumberColumn, operators: NumberColumn): Uint8Array {
    this.isOperator.forEach((is, row) => is && (this.ns[row] = this.weighted(row)));
    const taken = new Map<number, number>();
    const pairs: [number, number][] = [];
    primitives.forEach((primitive, i) => {
      const operator = operators[i]!;
      if (!this.isPrimitive[primitive] || !this.isOperator[operator] || this.track[primitive] !== this.track[operator]) return;
      pairs.push([primitive, operator]);
      taken.set(operator, (taken.get(operator) ?? 0) + this.weighted(primitive));
    });
    const isEnough = new Map([...taken].map(([operator, ns]) => [operator, ns <= this.ns[operator]!]));
    const isCounted = this.isOperator.slice();
    for (const [primitive, operator] of pairs) {
      if (!isEnough.get(operator)) continue;
      this.ns[primitive] = this.weighted(primitive);
      this.ns[operator]! -= this.weighted(primitive);
      isCounted[primitive] = 1;
    }
    return isCounted;
  }
}

function chosenSpans(spans: Spans, choice: Choice, tracks: Tracks, up: Int32Array): (row: number) => boolean {
  const tests: ((row: number) => boolean)[] = [];
  if (choice.module) {
    const inside = spans.about.classes.map(([, , , module]) => isInModule(tracks.modulePath.get(module), choice.module));
    tests.push(row => inside[spans.cls[row]!]!);
  }
  if (choice.name) {
    const isCalled = spans.about.classes.map(([name]) => spans.about.names[name] === choice.name);
    tests.push(hasAbove(up, row => isCalled[spans.cls[row]!]!));
  }
  return row => tests.every(test => test(row));
}

// A frame for each name within its layer.
function framesOf({ classes, names, layers }: SpanAbout): { frames: RuleFrame[]; ofClass: number[] } {
  const numbers = new Map<string, number>();
  const frames: RuleFrame[] = [];
  const ofClass = classes.map(([name, , layer]) => {
    const key = `${layer} ${name}`;
    let number = numbers.get(key);
    if (number === undefined) {
      const [label, called] = [names[name]!, layers[layer]!];
      number = frames.push({ name: label, label, place: "", layer: called, colour: called }) - 1;
      numbers.set(key, number);
    }
    return number;
  });
  return { frames, ofClass };
}
