// What filters and search bring out: of each strip the spans that they keep, found when it is drawn.

import type { Spans } from "../data/spans";
import type { Tracks } from "../data/tracks";
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

// Which spans the filters keep; null: there is no filter.
export function testOf(spans: Spans, tracks: Tracks, { name, moduleName, step }: Filter): ((row: number) => boolean) | null {
  if (!name && !moduleName && !step) return null;
  const { names, classes } = spans.about;
  const below = `${moduleName}.`;
  const inModule = (module: number) => {
    const path = tracks.modulePath.get(module);
    return path !== undefined && (path === moduleName || path.startsWith(below));
  };
  const ofClass = Uint8Array.from(classes, of => ((!name || names[of[0]] === name) && (!moduleName || inModule(of[3])) ? 1 : 0));
  const wanted = step ? Number(step) + 1 : 0;
  return row => ofClass[spans.cls[row]] === 1 && (!step || spans.step[row] === wanted);
}
