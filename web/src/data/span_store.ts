// What the timeline asks about spans, whoever answers: the page itself, where it holds all of them
// (whole_spans.ts), or the server of `layerscope view`, where they are too many (window_spans.ts).
//
// What is not there yet is `undefined`; `answers` changes when it has come.

import type { ReadonlySignal } from "@preact/signals";
import type { Strip } from "../timeline/strips";
import type { SpanAbout } from "./spans";
import type { GroupBy, StatisticsRow } from "./statistics";

export interface OneSpan {
  row: number; // its place in the order of all spans, which names it
  track: number;
  start: number;
  dur: number;
  self: number;
  cls: number;
  step: number; // 1 + the step; 0: none
}

// What lies one after the other in a row of the picture.
export interface Lane {
  id: number;
  track: number;
  layer: number; // where layers stand apart; else -1
  count: number;
}

// Which spans are kept: by class (1: it is kept), by step [from, to), by track; null: all.
export interface Filter {
  classes: Uint8Array | null;
  steps: readonly [number, number] | null;
  tracks: readonly number[] | null;
}

export const EVERYTHING: Filter = { classes: null, steps: null, tracks: null };

export function isEverything({ classes, steps, tracks }: Filter): boolean {
  return classes === null && steps === null && tracks === null;
}

export interface Seen {
  from: number;
  to: number;
  width: number; // device pixels
  lanes: readonly Lane[];
}

export interface NameSum {
  name: string;
  layer: number;
  count: number;
  total_ns: number;
  first: OneSpan;
}

export interface SpanLink {
  kind: string;
  isFrom: boolean; // whether it begins at the span that was asked about
  other: OneSpan;
}

// All spans of one name and layer.
export interface SameName {
  place: number; // of the span among them, from 1
  count: number;
  total_ns: number;
  self_ns: number;
  min_ns: number;
  p50_ns: number;
  p99_ns: number;
  max_ns: number;
}

// Everything of one span. Lists are as long as they are shown, with how many there are.
export interface Story {
  span: OneSpan;
  phase: string;
  weight: number;
  args: number; // the key of its arguments; -1: none
  around: readonly OneSpan[]; // the outermost first
  aroundCount: number;
  below: readonly NameSum[]; // most time first
  belowCount: number;
  primitives: readonly { span: OneSpan; args: number }[];
  primitiveCount: number;
  links: readonly SpanLink[];
  partners: readonly SpanLink[]; // without those to its primitives
  partnerCount: number;
  same: SameName;
}

export const [MOST, MOST_AROUND, MOST_LINKS, MOST_SHOWN] = [12, 40, 200, 500] as const;

// Spans of a stretch as a table: those with most self time, and how many there are.
export interface ShownSpans {
  all: number;
  spans: readonly OneSpan[];
}

export interface SpanStore {
  readonly about: SpanAbout;
  readonly count: number;
  readonly first_ns: number; // Infinity: there are no spans
  readonly end_ns: number;
  readonly counts: ArrayLike<number>; // spans of each class
  readonly answers: ReadonlySignal<number>;
  readonly problem: ReadonlySignal<string>; // why something cannot be answered
  readonly pictures: ReadonlySignal<number>; // changes when something to draw has come

  size(track: number): number;
  isUnfinished(row: number): boolean;
  // The lanes of a track, the outermost first; with its layers apart, layer by layer.
  lanes(track: number): readonly Lane[];
  lanesApart(track: number): readonly Lane[];
  placeIn(lane: Lane, of: OneSpan): number; // -1: it is in another one

  // Bring out what a filter keeps and what a search has found.
  emphasise(filter: Filter, found: Uint8Array | null): void;
  see(seen: Seen): void; // what the picture shows from now on
  drawn(lane: Lane): Strip | null;
  kept(lane: Lane): Strip | null;
  found(lane: Lane): Strip | null;

  known(row: number): OneSpan | undefined;
  span(row: number): Promise<OneSpan>;
  story(row: number): Story | undefined;
  statistics(filter: Filter, from: number, to: number, by: GroupBy): readonly StatisticsRow[] | undefined;
  shown(filter: Filter, from: number, to: number): ShownSpans | undefined;
  at(lane: Lane, place: number): Promise<OneSpan | null>;
  // The first span of a lane that reaches a moment, or the last one that starts before it.
  reaching(lane: Lane, time: number): Promise<OneSpan | null>;
  before(lane: Lane, time: number): Promise<OneSpan | null>;
  // The next span that the search has found, by time and then by row, from a place on.
  hit(start: number, row: number, direction: 1 | -1): Promise<OneSpan | null>;
  ofSameName(row: number, direction: 1 | -1): Promise<OneSpan | null>;
}

export function nameOf({ about }: SpanStore, cls: number): string {
  return about.names[about.classes[cls]![0]]!;
}
