// The flame graphs of the page: those of the whole recording are in blocks, those of what is chosen are
// built here.

import type { Recording } from "../data/recording";
import { tracksOf, tracksOfProcess } from "../data/tracks";
import { count, duration, plural } from "../ui/format";
import { type Choice, isEverything } from "./choice";
import type { FlameData, FrameAbout, Nodes } from "./data";
import { drawnTree, invertedTree } from "./frame_tree";
import { type Built, fromSamples, SAMPLE_KINDS } from "./from_samples";
import { fromServer, fromSpans, GPU } from "./from_spans";
import type { By } from "./groups";
import type { RuleFrame } from "./rules";
import { type Tree, treeOfPicture } from "./tree";
import { amountIn } from "./words";

export interface KindAbout {
  title: string;
  unit: string;
  what: string; // the whole is so much of this
  noun: string; // counted in these
}

export interface Look {
  kind: string;
  about: KindAbout;
  choice: Choice;
  layers: ReadonlySet<string> | null; // null: the default
  by: By;
  isInverted: boolean;
  isCompared: boolean; // with the recording before
}

export interface Picture {
  data: FlameData;
  tree: Tree;
  says: string;
  notes: string[];
}

export type Found = Picture | { problem: string };

const ROW_PX = 18;
const TOP_PX = 40; // of the search field
const FOOT_PX = 8;
const WIDTH_PX = 1200;
const ALL: RuleFrame = { name: "all", label: "all", place: "", layer: "everything", colour: "other" };
const NOTHING = "Nothing of this kind is left to show. Take away some of the filters.";

const WHOLE_ONLY = "This page shows the memory of the whole recording. Take away the filters, or type the command below.";

const NOT_OF_PART = "This page shows the work of GPUs of the whole recording. Take away the filters, or type the command below.";

export const comparedBlock = (kind: string) => `flame ${kind} compared`;

export async function pictureOf(recording: Recording, look: Look): Promise<Found> {
  if (look.isCompared) return ofBoth(recording, look.kind);
  const isWhole = isEverything(look.choice) && !look.layers && look.by === "none";
  if (!isWhole && isMemory(look.about)) return { problem: WHOLE_ONLY };
  return isWhole ? ofWhole(recording, look) : ofChosen(recording, look);
}

// What cannot be built of samples and spans.
export const isMemory = (about: KindAbout) => about.unit === "bytes";

interface WholeAbout {
  problem?: string;
  unit: string;
  whole: number;
  sampled: boolean;
  noun: string;
  left_out: number;
  thinnest_px: number;
  says: string;
  notes: string[];
  frames: FrameAbout[];
}

async function ofWhole(recording: Recording, { kind, isInverted }: Look): Promise<Found> {
  const upright = await recording.json<WholeAbout>(`flame ${kind}`);
  if (upright.problem !== undefined) return { problem: upright.problem };
  const block = isInverted ? `flame ${kind} inverted` : `flame ${kind}`;
  const [about, columns] = await Promise.all([recording.json<WholeAbout>(block), recording.columns(`${block} nodes`)]);
  const nodes = columns as unknown as Nodes;
  const data = { ...geometry(nodes), ...about, inverted: isInverted, nodes };
  return finished(data, about.says, [...thinNote(about.left_out, about.thinnest_px), ...about.notes]);
}

interface ComparedAbout extends WholeAbout {
  inverted: boolean;
  nodes: Nodes;
  colours: string[];
}

async function ofBoth(recording: Recording, kind: string): Promise<Found> {
  const about = await recording.json<ComparedAbout>(comparedBlock(kind));
  if (about.problem !== undefined) return { problem: about.problem };
  const data: FlameData = { ...geometry(about.nodes), ...about };
  const notes = [...thinNote(about.left_out, about.thinnest_px), ...about.notes];
  return { data, tree: treeOfPicture(data, about.colours), says: about.says, notes };
}

async function ofChosen(recording: Recording, look: Look): Promise<Found> {
  const { kind, about, layers, by, isInverted } = look;
  const choice = await ofItsProcess(recording, look.choice);
  const isSampled = kind in SAMPLE_KINDS;
  const problem = isSampled ? (await recording.json<WholeAbout>(`flame ${kind}`)).problem : undefined;
  if (problem !== undefined) return { problem };
  if (kind === GPU && recording.answers) return { problem: NOT_OF_PART };
  const ofSpans = recording.answers ? fromServer : fromSpans;
  const built = isSampled ? await fromSamples(recording, kind, choice, layers, by) : await ofSpans(recording, kind, choice, by);
  if (!built.tree.parent.length) return { problem: NOTHING };
  const tree = isInverted ? invertedTree(built.tree, built.frames.length) : built.tree;
  const drawn = drawnTree(tree, by === "step" && !isInverted);
  const used = framesOf(drawn.nodes, built);
  const { whole, left_out } = drawn;
  const data = { ...geometry(used.nodes), unit: about.unit, whole, sampled: isSampled, noun: about.noun, inverted: isInverted, left_out, ...used };
  const counted = plural(used.nodes.count[0]!, about.noun);
  const idle = built.idle ? [`${amountOfIdle(built.idle, about.unit)} that threads of pools waited without work are left out.`] : [];
  return finished(data, `${amountIn(about.unit, whole)} ${about.what} in ${counted}`, [...thinNote(left_out, drawn.thinnest_px), ...idle]);
}

// Only the tracks of the process whose steps are chosen.
async function ofItsProcess(recording: Recording, choice: Choice): Promise<Choice> {
  const own = choice.process === null ? null : tracksOfProcess(await tracksOf(recording), choice.process);
  if (!own) return choice;
  const { tracks } = choice;
  return { ...choice, tracks: new Set([...own].filter(track => !tracks || tracks.has(track))) };
}

const amountOfIdle = (value: number, unit: string) => (unit === "ns" ? duration(value) : count(value));

// The frames that nodes name, and no others.
function framesOf(nodes: Nodes, built: Built): { nodes: Nodes; frames: FrameAbout[] } {
  const numbers = new Map<number, number>([[0, 0]]);
  const frames: FrameAbout[] = [ALL as FrameAbout];
  const frame = Array.from(nodes.frame, one => {
    let number = numbers.get(one);
    if (number === undefined) {
      number = frames.push(built.frames[one - 1] as FrameAbout) - 1;
      numbers.set(one, number);
    }
    return number;
  });
  return { nodes: { ...nodes, frame }, frames };
}

function geometry(nodes: Nodes) {
  let deepest = 0;
  for (let i = 0; i < nodes.depth.length; i++) deepest = Math.max(deepest, nodes.depth[i]!);
  const rows = deepest + 1;
  return { width: WIDTH_PX, row: ROW_PX, top: TOP_PX, height: TOP_PX + rows * ROW_PX + FOOT_PX, rows, flipped: false };
}

function thinNote(leftOut: number, thinnestPx: number): string[] {
  if (!leftOut) return [];
  return [`${plural(leftOut, "frame")} thinner than ${Number(thinnestPx.toPrecision(2))} px of ${WIDTH_PX}, and what they hold, not drawn.`];
}

function finished(data: FlameData, says: string, notes: string[]): Picture {
  const colours = Array.from(data.nodes.frame, (frame, i) => (i ? data.frames[frame]!.colour! : "other"));
  return { data, tree: treeOfPicture(data, colours), says, notes };
}
