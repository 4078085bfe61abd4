// What stands around all frames: nothing, or a frame for each thread, process, rank or step.

import type { NumberColumn } from "../data/blocks";

export type By = "none" | "thread" | "process" | "rank" | "step";

// By track what its thread, process or rank is called.
export type Labels = readonly [number, string][];

export interface TrackGroups {
  groups: Record<string, Labels>;
  no_group: Record<string, string>;
}

export interface Groups {
  labels: string[];
  of: (row: number) => number; // -1: there are no groups
}

// `step`: 1 + the step of each row; 0: none.
export function groupsBy(by: By, known: TrackGroups, track: NumberColumn, step: NumberColumn): Groups {
  if (by === "none") return { labels: [], of: () => -1 };
  if (by === "step") return byStep(step);
  return byTrack(known.groups[by]!, known.no_group[by]!, track);
}

function byTrack(tracks: Labels, unknown: string, track: NumberColumn): Groups {
  const labels = [...new Set([...tracks.map(([, label]) => label), unknown])];
  const number = new Map(labels.map((label, place) => [label, place]));
  const ofTrack = new Map(tracks.map(([one, label]) => [one, number.get(label)!]));
  return { labels, of: row => ofTrack.get(track[row]!) ?? number.get(unknown)! };
}

// As they follow each other.
function byStep(step: NumberColumn): Groups {
  const found = [...new Set<number>(step)].sort((a, b) => a - b);
  const number = new Map(found.map((one, place) => [one, place]));
  return { labels: found.map(one => (one ? `step ${one - 1}` : "outside steps")), of: row => number.get(step[row]!)! };
}
