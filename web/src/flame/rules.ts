// The stacks of a recording, and what becomes of each frame: show/report/flame.py writes it,
// analyse/stacks/frame_rules.py says what it means.

import type { NumberColumn } from "../data/blocks";
import type { Recording } from "../data/recording";
import type { FrameAbout } from "./data";
import { NONE, type Stacked } from "./frame_tree";
import type { TrackGroups } from "./groups";

export interface RuleFrame extends Partial<FrameAbout> {
  name: string;
}

interface About extends TrackGroups {
  frames: RuleFrame[];
  waits: Record<string, [number, number]>; // by the name of the state: the frame of a wait, and of one of an idle thread
  workers: number;
  importing: number;
  unknown: number;
  no_frame: number;
  layers: string[];
}

export const MACHINERY = 1;
export const SYSTEM = 2;
export const BODY = 4;
export const MINE = 8;
export const TEAM = 16;
export const THREAD = 32;

export class Rules {
  readonly stacks: Stacked; // by line
  readonly function: NumberColumn;
  readonly layer: NumberColumn;
  readonly flags: NumberColumn;
  readonly imported: NumberColumn; // 1 + the frame of the import; 0: none
  private readonly keys: Int32Array;
  private readonly placeOf: Map<number, number>;

  constructor(
    readonly about: About,
    rules: Record<string, NumberColumn>,
    numbers: Record<string, NumberColumn>,
    stacks: Record<string, NumberColumn>,
  ) {
    this.function = rules["function"]!;
    this.layer = rules["layer"]!;
    this.flags = rules["flags"]!;
    this.imported = rules["imported"]!;
    this.keys = Int32Array.from(stacks["stack"]!);
    this.placeOf = new Map(Array.from(this.keys, (key, place) => [key, place]));
    const rowOf = new Map(Array.from(numbers["key"]!, (key, row) => [key, row]));
    this.stacks = {
      up: Int32Array.from(stacks["parent"]!, parent => this.place(parent - 1)),
      frame: Int32Array.from(stacks["frame"]!, frame => numbers["number"]![rowOf.get(frame)!]!),
    };
  }

  // Where the stack of this key is.
  place(key: number): number {
    return this.keys[key] === key ? key : (this.placeOf.get(key) ?? NONE);
  }

  layerCalled(name: string): number {
    return this.about.layers.indexOf(name);
  }
}

const known = new WeakMap<Recording, Promise<Rules>>();

export function rulesOf(recording: Recording): Promise<Rules> {
  let asked = known.get(recording);
  if (!asked) {
    const blocks = [recording.columns("flame rules"), recording.columns("flame numbers"), recording.columns("stacks")] as const;
    asked = Promise.all([recording.json<About>("flame frames"), ...blocks]).then(read => new Rules(...read));
    known.set(recording, asked);
  }
  return asked;
}
