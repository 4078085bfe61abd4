// What a flame graph is drawn of: show/flame/markup.py writes it into a file, the report's page has it
// in blocks, or makes it of samples.

export type Numbers = ArrayLike<number>;

// The frames that are drawn, a parent before its children; the first one is the whole. `start` and
// `total` are parts of the whole, `own` is what lies in no frame in it.
export interface Nodes {
  parent: Numbers;
  start: Numbers;
  total: Numbers;
  own: Numbers;
  count: Numbers;
  frame: Numbers;
  depth: Numbers;
  // Of a comparison: the change per unit, whether it is more than chance, and the recording before.
  change?: Numbers;
  sure?: Numbers;
  count_before?: Numbers;
  gone?: Numbers;
  before?: Numbers;
}

export interface FrameAbout {
  name?: string; // where it is not the label
  label: string;
  place: string;
  layer: string;
  shorter?: string[];
  hot?: [number, number][]; // lines, each with its share
  colour?: string; // classes, where they are not in the file already
}

export interface Compared {
  per: string;
  units: number;
  units_before: number;
  steps: number[];
  sure: number;
}

export interface FlameData {
  unit: string;
  whole: number;
  sampled: boolean;
  noun: string; // what was counted
  inverted: boolean;
  left_out: number;
  width: number;
  height: number;
  row: number;
  top: number;
  rows: number;
  flipped: boolean;
  nodes: Nodes;
  frames: FrameAbout[];
  compared?: Compared;
  gone?: { px: number; least: number; part: number };
}
