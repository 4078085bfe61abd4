// Which samples and spans a flame graph is made of, as the filters of the page say.

import { partInside } from "../data/statistics";

export interface Choice {
  time: readonly [number, number] | null; // [from, to) in ns since the start of the run
  steps: readonly [number, number] | null; // [from, to)
  process: number | null; // a key, of which the steps are; null: every process
  tracks: ReadonlySet<number> | null;
  module: string; // a path, which stands for all modules in it too
  name: string; // only below frames of this name
}

export function isEverything(choice: Choice): boolean {
  return !choice.time && !choice.steps && !choice.tracks && !choice.module && !choice.name;
}

// What the tables call spans without a module.
export const OUTSIDE = "outside any module";

// `path` is undefined where there is no module.
export function isInModule(path: string | undefined, module: string): boolean {
  return module === OUTSIDE ? path === undefined : path !== undefined && isInside(path, module);
}

// Whether the module at `path` is `module` or one that it holds. `module` may leave out the name of the
// network itself, and have * for any one name (sample_reader.is_inside).
export function isInside(path: string, module: string): boolean {
  const names = path.split(".");
  const wanted = module.split(".");
  return [0, 1].some(first => names.length - first >= wanted.length && wanted.every((one, at) => one === "*" || one === names[first + at]));
}

// `wait_ns`: of a wait how long it took. It may lie in the time that is chosen in part; all else, and what takes
// no time, has to begin there.
export function isChosenPlace(choice: Choice, track: number, at: number, step: number, wait_ns = 0): boolean {
  const { time, steps, tracks } = choice;
  if (time && (at < time[0] || at >= time[1]) && !partInside(time, at, wait_ns)) return false;
  if (steps && (step < steps[0] || step >= steps[1])) return false;
  return !tracks || tracks.has(track);
}
