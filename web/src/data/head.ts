// What the page knows from the start: show/report/contents.py writes it.

import type { BlockAbout } from "./blocks";

export interface RunAbout {
  name: string;
  command: string[];
  state: string;
  started_utc: string;
  start_ns: number;
  wall_ns: number;
  duration: string;
  has_python: boolean;
  problems: string[];
}

export interface TableColumn {
  name: string;
  type: string;
  unit: string;
  meaning: string;
  instant: boolean;
  signed: boolean;
}

export interface TableAbout {
  name: string;
  by: string | null;
  meaning: string;
  rows: number; // -1: not known yet, the block `about BLOCK` has it and the columns
  block: string;
  columns: TableColumn[];
  notes: string[];
  totals: Record<string, number | string>;
  empty: string;
  command: string;
}

export interface Head {
  format: number;
  run: RunAbout;
  pages: { name: string; title: string }[];
  tables: TableAbout[];
  // What the page does not have of the recording.
  notes: string[];
  // Whether there are more spans than a page can hold, so that the server answers questions about them.
  has_many_spans?: boolean;
  // Null: the block itself says how it is read.
  blocks: Record<string, BlockAbout | null>;
}
