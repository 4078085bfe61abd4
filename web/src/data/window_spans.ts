// Answers about spans from the server of `layerscope view` (show/report/questions.py), which has too
// many for a page to hold. Of the picture it sends what can be seen at this size.

import { signal } from "@preact/signals";
import type { Strip } from "../timeline/strips";
import { type BlockAbout, columnsOf } from "./blocks";
import type { Answers } from "./recording";
import { EVERYTHING, type Filter, isEverything, type Lane, type NameSum, type OneSpan, type SameName, type Seen, type ShownSpans, type SpanLink, type SpanStore, type Story } from "./span_store";
import type { SpanAbout } from "./spans";
import type { GroupBy, StatisticsRow } from "./statistics";

// [track, depth or layer, spans] of each lane.
type LaneAbout = [number, number, number];

interface WindowAbout extends SpanAbout {
  count: number;
  end_ns: number;
  counts: number[];
  lanes: LaneAbout[];
  first_ns: number | null;
}

// [row, track, start, dur, self, class, depth, step, parent, lane, place, lane with layers apart, place there].
type SpanWords = number[];
type LinkWords = [string, boolean, SpanWords];
type NumberRow = [number, number, number, number, number, number, number, number, number];
type StoryWords = [
  SpanWords, number, number, number, SpanWords[], number, [number, number, number, SpanWords][], number, [SpanWords, number][], number,
  LinkWords[], LinkWords[], number, NumberRow, number,
];

// Spans as they are drawn, and how many there are.
export interface Bars {
  count: number;
  bars: { depth: number; start: number; dur: number; name: string }[];
}

// analyse/timeline/flame.py says what it is.
export interface SelectedTree {
  parent: number[];
  frame: number[];
  node: number[];
  key: number[];
  own: number[];
  spans: number[];
}

interface WindowLane extends Lane {
  isApart: boolean;
}

interface PlacedSpan extends OneSpan {
  places: readonly number[]; // lane, place; lane with layers apart, place there
}

interface PictureAbout extends BlockAbout {
  counts: number[]; // of each lane, of each of the strips that were asked for
}

interface Strips {
  drawn: Strip;
  kept: Strip | null;
  found: Strip | null;
}

const MOST_ANSWERS = 300;
// After so long a question that was not answered is asked again.
const PATIENCE_MS = 5000;
// How much more than is shown is asked for on both sides, so that a picture that moves has something to show.
const MARGIN = 0.5;

export class WindowSpans implements SpanStore {
  readonly answers = signal(0);
  readonly problem = signal("");
  readonly pictures = signal(0);
  private readonly unfinished: ReadonlySet<number>;
  private readonly ofTrack: ReadonlyMap<number, WindowLane[]>;
  private readonly apartOfTrack = signal<ReadonlyMap<number, WindowLane[]> | null>(null);
  private readonly given = new Map<string, { value: unknown } | null>(); // null: it was asked for
  private filter: Filter = EVERYTHING;
  private classes: Uint8Array | null = null;
  private emphasis = ""; // of filter and search, as parameters
  private strips = new Map<number, Strips>();
  private seen = ""; // the picture that is there
  private wanted = ""; // and the one that is to be
  private isAsking = false;
  private isAskingApart = false;

  constructor(
    readonly about: WindowAbout,
    private readonly ask: Answers,
  ) {
    this.unfinished = new Set(about.unfinished);
    this.ofTrack = byTrack(about.lanes, false);
  }

  static async opened(ask: Answers): Promise<SpanStore> {
    return new WindowSpans(await ask.json<WindowAbout>("/about-spans"), ask);
  }

  get count(): number {
    return this.about.count;
  }

  get first_ns(): number {
    return this.about.first_ns ?? Infinity;
  }

  get end_ns(): number {
    return this.about.end_ns;
  }

  get counts(): readonly number[] {
    return this.about.counts;
  }

  size(track: number): number {
    const at = this.about.tracks.indexOf(track);
    return at < 0 ? 0 : (this.about.begins[at + 1] ?? this.count) - this.about.begins[at]!;
  }

  isUnfinished(row: number): boolean {
    return this.unfinished.has(row);
  }

  lanes(track: number): readonly WindowLane[] {
    return this.ofTrack.get(track) ?? [];
  }

  // Until they are there, layers do not stand apart.
  lanesApart(track: number): readonly WindowLane[] {
    if (!this.apartOfTrack.value && !this.isAskingApart) void this.askForLanesApart();
    return (this.apartOfTrack.value ?? this.ofTrack).get(track) ?? [];
  }

  private async askForLanesApart(): Promise<void> {
    this.isAskingApart = true;
    const lanes = await this.asked<LaneAbout[]>("/lanes?arranged=layer").catch(() => null);
    if (!lanes) return;
    this.given.clear(); // spans now know where they are in these, too
    this.apartOfTrack.value = byTrack(lanes, true);
  }

  placeIn(lane: Lane, of: OneSpan): number {
    const [inLane, place, apart, placeApart] = (of as PlacedSpan).places;
    if ((lane as WindowLane).isApart) return apart === lane.id ? placeApart! : -1;
    return inLane === lane.id ? place! : -1;
  }

  emphasise(filter: Filter, found: Uint8Array | null): void {
    this.filter = filter;
    this.classes = found;
    this.emphasis = `${parametersOf(filter)}${found ? `&found=${bits(found)}` : ""}`;
  }

  see({ from, to, width, lanes }: Seen): void {
    const ids = lanes.map(lane => laneWord(lane as WindowLane)).join(",");
    this.wanted = `/picture?start=${from}&end=${to}&width=${width}&margin=${Math.round(width * MARGIN)}&lanes=${ids}${this.emphasis}`;
    if (!this.isAsking && this.wanted !== this.seen) void this.askForPicture(lanes as WindowLane[]);
  }

  private async askForPicture(lanes: readonly WindowLane[]): Promise<void> {
    this.isAsking = true;
    const asked = this.wanted;
    const isFiltered = !isEverything(this.filter);
    const isSearched = this.classes !== null;
    try {
      const { about, data } = await this.ask.columns(asked);
      this.strips = stripsOf(about as PictureAbout, data, lanes, isFiltered, isSearched);
      this.problem.value = "";
    } catch (error) {
      this.problem.value = error instanceof Error ? error.message : String(error);
      this.later(() => {
        if (this.seen === asked) this.seen = "";
        this.pictures.value++;
      });
    }
    this.seen = asked;
    this.isAsking = false;
    this.pictures.value++;
  }

  drawn(lane: Lane): Strip | null {
    return this.strips.get(keyOf(lane))?.drawn ?? null;
  }

  kept(lane: Lane): Strip | null {
    return isEverything(this.filter) ? null : (this.strips.get(keyOf(lane))?.kept ?? null);
  }

  found(lane: Lane): Strip | null {
    return this.classes && (this.strips.get(keyOf(lane))?.found ?? null);
  }

  known(row: number): OneSpan | undefined {
    if (row < 0 || row >= this.count) return undefined;
    const found = this.answer<SpanWords[]>(`/spans?rows=${row}`);
    return found && spanOf(found[0]!);
  }

  async span(row: number): Promise<OneSpan> {
    const found = await this.asked<SpanWords[]>(`/spans?rows=${row}`);
    return spanOf(found[0]!);
  }

  story(row: number): Story | undefined {
    if (row < 0 || row >= this.count) return undefined;
    const found = this.answer<StoryWords>(`/span?row=${row}`);
    return found && this.told(found);
  }

  private told(words: StoryWords): Story {
    const [span, phase, weight, args, around, aroundCount, below, belowCount, primitives, primitiveCount, links, partners, partnerCount, same, place] = words;
    const { names, classes, phases } = this.about;
    const sums = below.map(([cls, count, total_ns, first]): NameSum => ({ name: names[classes[cls]![0]]!, layer: classes[cls]![2], count, total_ns, first: spanOf(first) }));
    const of = same as readonly number[];
    return {
      span: spanOf(span),
      phase: phase ? phases[phase - 1]! : "",
      weight,
      args: args - 1,
      around: around.map(spanOf),
      aroundCount,
      below: sums,
      belowCount,
      primitives: primitives.map(([one, own]) => ({ span: spanOf(one), args: own - 1 })),
      primitiveCount,
      links: links.map(linkOf),
      partners: partners.map(linkOf),
      partnerCount,
      same: { place, count: of[2], total_ns: of[3], self_ns: of[4], min_ns: of[5], p50_ns: of[6], p99_ns: of[7], max_ns: of[8] } as SameName,
    };
  }

  statistics(filter: Filter, from: number, to: number, by: GroupBy): readonly StatisticsRow[] | undefined {
    const rows = this.answer<NumberRow[]>(`/statistics?by=${by}${stretch(from, to)}${parametersOf(filter)}`);
    return rows?.map(([key, layer, count, total_ns, self_ns, min_ns, p50_ns, p99_ns, max_ns]) => ({ key, layer, count, total_ns, self_ns, min_ns, p50_ns, p99_ns, max_ns }));
  }

  shown(filter: Filter, from: number, to: number): ShownSpans | undefined {
    const found = this.answer<[number, SpanWords[]]>(`/shown?${stretch(from, to).slice(1)}${parametersOf(filter)}`);
    return found && { all: found[0], spans: found[1].map(spanOf) };
  }

  at(lane: Lane, place: number): Promise<OneSpan | null> {
    return this.one(`/place?lane=${laneWord(lane as WindowLane)}&place=${place}`);
  }

  reaching(lane: Lane, time: number): Promise<OneSpan | null> {
    return this.one(`/place?lane=${laneWord(lane as WindowLane)}&start=${time}`);
  }

  before(lane: Lane, time: number): Promise<OneSpan | null> {
    return this.one(`/place?lane=${laneWord(lane as WindowLane)}&end=${time}`);
  }

  hit(start: number, row: number, direction: 1 | -1): Promise<OneSpan | null> {
    const at = direction > 0 ? Math.ceil(start) : Math.floor(start);
    return this.one(`/hit?at=${at}&row=${row}&direction=${direction}${this.emphasis}`);
  }

  ofSameName(row: number, direction: 1 | -1): Promise<OneSpan | null> {
    return this.one(`/same?row=${row}&direction=${direction}`);
  }

  // The tree of operators or primitives of a selection; `name`: only below spans called so.
  async flame(kind: string, by: string, filter: Filter, time: readonly [number, number] | null, name: string): Promise<SelectedTree | null> {
    const called = name ? this.about.names.indexOf(name) : -1;
    if (name && called < 0) return null;
    const words = `/flame?kind=${kind}&by=${by}${time ? stretch(...time) : ""}${parametersOf(filter)}`;
    return this.ask.json<SelectedTree>(called < 0 ? words : `${words}&name=${called}`);
  }

  // What can be seen at this width of the spans that start in a stretch, of those tracks on the one that
  // has most of them, down to a depth.
  async busiest(tracks: readonly number[], [from, to]: readonly [number, number], width: number, depths: number): Promise<Bars> {
    const own = this.about.tracks.filter(track => tracks.includes(track));
    const asked = `/statistics?by=track${stretch(from, to)}${parametersOf({ ...EVERYTHING, tracks: own })}`;
    const counts = new Map((await this.ask.json<NumberRow[]>(asked)).map(([track, , count]) => [track, count]));
    const most = own.reduce((best, track) => ((counts.get(track) ?? 0) > (counts.get(best) ?? 0) ? track : best), own[0] ?? -1);
    const count = counts.get(most) ?? 0;
    const lanes = this.lanes(most).filter(lane => this.depthOf(lane) < depths);
    if (!count) return { count, bars: [] };
    const { about, data } = await this.ask.columns(`/picture?start=${from}&end=${to}&width=${width}&margin=0&lanes=${lanes.map(laneWord).join(",")}`);
    const strips = stripsOf(about as PictureAbout, data, lanes, false, false);
    const { names, classes } = this.about;
    const bars = lanes.flatMap(lane => {
      const { start, end, codes } = strips.get(keyOf(lane))!.drawn;
      return Array.from(start, (at, i) => ({ depth: this.depthOf(lane), start: at, dur: end[i]! - at, name: names[classes[codes[i]!]![0]]! }));
    });
    return { count, bars: bars.filter(bar => bar.start >= from && bar.start < to) };
  }

  private depthOf({ id }: WindowLane): number {
    return this.about.lanes[id]![1];
  }

  private async one(question: string): Promise<OneSpan | null> {
    const found = await this.asked<SpanWords | null>(question);
    return found && spanOf(found);
  }

  // What the server has answered; it is asked first where that is not known yet.
  private answer<T>(question: string): T | undefined {
    const known = this.given.get(question);
    if (known) return known.value as T;
    if (known === undefined) void this.asked(question).catch(() => {});
    return undefined;
  }

  private async asked<T>(question: string): Promise<T> {
    const known = this.given.get(question);
    if (known) return known.value as T;
    this.given.set(question, null);
    if (this.given.size > MOST_ANSWERS) this.given.delete(this.given.keys().next().value!);
    try {
      const value = await this.ask.json<T>(question);
      this.given.set(question, { value });
      this.problem.value = "";
      this.answers.value++;
      return value;
    } catch (error) {
      this.problem.value = error instanceof Error ? error.message : String(error);
      this.later(() => {
        this.given.delete(question);
        this.answers.value++;
      });
      throw error;
    }
  }

  // A server that does not answer may do so again, such as one behind a tunnel that was closed.
  private later(again: () => void): void {
    setTimeout(again, PATIENCE_MS);
  }
}

function byTrack(lanes: readonly LaneAbout[], isApart: boolean): Map<number, WindowLane[]> {
  const found = new Map<number, WindowLane[]>();
  lanes.forEach(([track, level, count], id) => {
    const lane = { id, track, layer: isApart ? level : -1, count, isApart };
    const of = found.get(track);
    if (of) of.push(lane);
    else found.set(track, [lane]);
  });
  return found;
}

const laneWord = ({ id, isApart }: WindowLane) => (isApart ? `L${id}` : String(id));
const keyOf = (lane: Lane) => ((lane as WindowLane).isApart ? -1 - lane.id : lane.id);

function spanOf([row, track, start, dur, self, cls, , step, , ...places]: SpanWords): PlacedSpan {
  return { row, track, start, dur, self, cls, step, places } as PlacedSpan;
}

const linkOf = ([kind, isFrom, other]: LinkWords): SpanLink => ({ kind, isFrom, other: spanOf(other) });

function stretch(from: number, to: number): string {
  return `${Number.isFinite(from) ? `&start=${from}` : ""}${Number.isFinite(to) ? `&end=${to}` : ""}`;
}

function parametersOf({ classes, steps, tracks }: Filter): string {
  const found = [classes && `&classes=${bits(classes)}`, steps && `&steps=${steps[0]}-${steps[1]}`, tracks && `&tracks=${tracks.join(",")}`];
  return found.filter(Boolean).join("");
}

// A bit of each class, as base64 that an address can hold; what is not there is 0.
function bits(classes: Uint8Array): string {
  const last = classes.lastIndexOf(1);
  const bytes = new Uint8Array((last >> 3) + 1);
  classes.forEach((is, at) => is && (bytes[at >> 3]! |= 1 << (at & 7)));
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

// The strips of each lane: all spans, those that the filter keeps, those that the search has found.
function stripsOf(about: PictureAbout, data: Uint8Array, lanes: readonly Lane[], isFiltered: boolean, isSearched: boolean): Map<number, Strips> {
  const columns = columnsOf(about, data);
  const rows = Uint32Array.from(columns["row"]!);
  const start = Float64Array.from(columns["start"]!);
  const end = start.map((from, at) => from + columns["dur"]![at]!);
  const reach = end.map((to, at) => to + columns["reach"]![at]!);
  const codes = columns["class"]!;
  let at = 0;
  let part = 0;
  const next = (): Strip => {
    const [from, to] = [at, (at += about.counts[part++]!)];
    return { rows: rows.subarray(from, to), start: start.subarray(from, to), end: end.subarray(from, to), reach: reach.subarray(from, to), codes: codes.subarray(from, to) };
  };
  return new Map(lanes.map(lane => [keyOf(lane), { drawn: next(), kept: isFiltered ? next() : null, found: isSearched ? next() : null }]));
}
