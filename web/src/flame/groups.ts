// What stands around all frames: nothing, or a frame for each thread or step.

import type { NumberColumn } from "../data/blocks";

export type By = "none" | "thread" | "step";

export interface Groups {
  labels: string[];
  of: (row: number) => number; // -1: there are no groups
}

// `step`: 1 + the step of each row; 0: none.
export function groupsBy(by: By, threads: readonly [number, string][], track: NumberColumn, step: NumberColumn): Groups {
  if (by === "thread") return byThread(threads, track);
  if (by === "step") return byStep(step);
  return { labels: [], of: () => -1 };
}

function byThread(threads: readonly [number, string][], track: NumberColumn): Groups {
  const labels = [...new Set([...threads.map(([, label]) => label), "no thread"])];
  const number = new Map(labels.map((label, place) => [label, place]));
  const ofTrack = new Map(threads.map(([one, label]) => [one, number.get(label)!]));
  return { labels, of: row => ofTrack.get(track[row]!) ?? labels.length - 1 };
}

// As they follow each other.
function byStep(step: NumberColumn): Groups {
  const found = [...new Set<number>(step)].sort((a, b) => a - b);
  const number = new Map(found.map((one, place) => [one, place]));
  return { labels: found.map(one => (one ? `step ${one - 1}` : "outside steps")), of: row => number.get(step[row]!)! };
}
