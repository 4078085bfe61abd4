// What filters and search bring out: of each strip the spans that they keep, found when it is drawn.

import type { Spans } from "../data/spans";
import { parsedStep } from "../data/steps";
import { type Tracks, tracksOfProcess } from "../data/tracks";
import { isInModule } from "../flame/choice";
import { kept, type Strip } from "./strips";

export interface Filter {
  name: string;
  moduleName: string;
  step: string;
}

export class Emphasis {
  readonly isFiltered: boolean;
  readonly isSearched: boolean;
  private readonly keeps: ((row: number) => boolean) | null;
  private readonly filtered = new WeakMap<Strip, Strip | "none">();
  private readonly found = new WeakMap<Strip, Strip | "none">();

  constructor(
    private readonly spans: Spans,
    tracks: Tracks,
    filter: Filter,
    private readonly hits: Uint8Array | null,
  ) {
    this.keeps = testOf(spans, tracks, filter);
    this.isFiltered = this.keeps !== null;
    this.isSearched = hits !== null;
  }

  // The spans that the filters keep; null: none.
  ofFilter(strip: Strip): Strip | null {
    const { keeps } = this;
    return keeps && remembered(this.filtered, strip, keeps);
  }

  // The spans that the search found; null: none.
  ofSearch(strip: Strip): Strip | null {
    const { hits, keeps, spans } = this;
    return hits && remembered(this.found, strip, row => hits[spans.cls[row]] === 1 && (!keeps || keeps(row)));
  }

  isHit(row: number): boolean {
    return this.hits !== null && this.hits[this.spans.cls[row]] === 1;
  }
}

function remembered(known: WeakMap<Strip, Strip | "none">, strip: Strip, test: (row: number) => boolean): Strip | null {
  let found = known.get(strip);
  if (!found) {
    found = kept(strip, test) ?? "none";
    known.set(strip, found);
  }
  return found === "none" ? null : found;
}

// The classes that the filters by name and module keep; null: all.
export function classesOf(spans: Spans, tracks: Tracks, name: string, moduleName: string): Uint8Array | null {
  if (!name && !moduleName) return null;
  const { names, classes } = spans.about;
  return Uint8Array.from(classes, of => ((!name || names[of[0]] === name) && (!moduleName || isInModule(tracks.modulePath.get(of[3]), moduleName)) ? 1 : 0));
}

// Which spans the filters keep; null: there is no filter.
export function testOf(spans: Spans, tracks: Tracks, { name, moduleName, step }: Filter): ((row: number) => boolean) | null {
  if (!name && !moduleName && !step) return null;
  const ofClass = classesOf(spans, tracks, name, moduleName);
  const filter = parsedStep(step);
  const ofProcess = filter && tracksOfProcess(tracks, filter.process);
  return row => {
    if (ofClass && ofClass[spans.cls[row]] === 0) return false;
    if (filter && (spans.step[row] <= filter.from || spans.step[row] > filter.to)) return false;
    return !ofProcess || ofProcess.has(spans.trackOf(row));
  };
}
