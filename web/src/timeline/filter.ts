// The filters of all pages as the timeline applies them to spans.

import { EVERYTHING, type Filter, type SpanStore } from "../data/span_store";
import { parsedStep } from "../data/steps";
import { type Tracks, tracksOfProcess } from "../data/tracks";
import { isInModule } from "../flame/choice";

export interface Words {
  name: string;
  moduleName: string;
  step: string;
}

// The classes that the filters by name and module keep; null: all.
function classesOf({ about }: SpanStore, tracks: Tracks, name: string, moduleName: string): Uint8Array | null {
  if (!name && !moduleName) return null;
  const { names, classes } = about;
  return Uint8Array.from(classes, of => ((!name || names[of[0]] === name) && (!moduleName || isInModule(tracks.modulePath.get(of[3]), moduleName)) ? 1 : 0));
}

// `selected`: the tracks that are selected; null: all. A step of one process is on its tracks alone.
export function filterOf(store: SpanStore, tracks: Tracks, { name, moduleName, step }: Words, selected: readonly number[] | null): Filter {
  const classes = classesOf(store, tracks, name, moduleName);
  const of = parsedStep(step);
  const own = tracksOfProcess(tracks, of?.process ?? null);
  const kept = own ? [...own].filter(track => !selected || selected.includes(track)) : selected;
  return { ...EVERYTHING, classes, steps: of && [of.from, of.to], tracks: kept };
}
