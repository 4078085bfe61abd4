// What mouse and keys do in the timeline.

import { batch } from "@preact/signals";
import { stretchOfSteps } from "../data/steps";
import type { Lane, OneSpan } from "../data/span_store";
import { chosen, mark, type Stretch, step, time, tracks as selectedTracks } from "../state/state";
import type { Area, Picture } from "./picture";
import type { Row } from "./rows";
import { set, setting, toggle } from "./settings";
import { firstAtLeast, type Strip } from "./strips";
import { padded } from "./view";

export class Actions {
  private moving: Promise<void> = Promise.resolve(); // to the span that a key leads to

  constructor(readonly picture: Picture) {}

  // `row`: of a span whose thread may be closed, or far away where it is to be shown.
  async choose(row: number, isShown = false): Promise<void> {
    chosen.value = row;
    const span = this.picture.spans.known(row) ?? (await this.picture.spans.span(row));
    if (chosen.value !== row) return; // another one was chosen meanwhile
    this.open(span);
    if (isShown) this.picture.show(span);
    const at = this.picture.placeOfSpan(span);
    if (at >= 0) this.picture.focus.value = { key: this.picture.layout.rows[at].key, row };
  }

  chooseNone(): void {
    chosen.value = null;
  }

  // Open what a span is in, and take away the words that hide its thread.
  private open(span: OneSpan): void {
    const { picture } = this;
    if (picture.placeOfSpan(span) >= 0) return;
    const { track } = span;
    const process = picture.tracks.track(track)?.process ?? -1;
    const isThere = (key: string) => picture.layout.rows.find(one => one.key === key);
    if (!isThere(`t${track}`) && setting("rows")) set("rows", "");
    if (isThere(`p${process}`)?.isOpen === false) toggle("toggled", `p${process}`);
    if (isThere(`t${track}`)?.isOpen === false) toggle("toggled", `t${track}`);
  }

  // What is selected: the time, else the step, else the chosen span.
  selected(): Stretch | null {
    const { spans, tracks } = this.picture;
    if (time.value) return time.value;
    const ofStep = stretchOfSteps(tracks.steps, step.value);
    if (ofStep) return ofStep;
    const span = chosen.value === null ? undefined : spans.known(chosen.value);
    return span ? [span.start, span.start + span.dur] : null;
  }

  focusSelection(): void {
    const selected = this.selected();
    if (selected) this.picture.view.show(padded(selected, 0.05), true);
  }

  showAll(): void {
    this.picture.view.show(this.picture.view.whole, true);
  }

  // Mark what is selected; what is marked already is marked no longer.
  markSelection(): void {
    const selected = this.selected();
    const isMarked = mark.value && selected && mark.value[0] === selected[0] && mark.value[1] === selected[1];
    mark.value = isMarked ? null : selected;
  }

  // Take away the choice and the focus, then the search. False: there was neither.
  escape(): boolean {
    const { picture } = this;
    if (chosen.value !== null || picture.focus.value) {
      batch(() => {
        chosen.value = null;
        picture.focus.value = null;
      });
      return true;
    }
    if (setting("find")) {
      set("find", "");
      return true;
    }
    return false;
  }

  // The row above or below becomes the one that keys go through.
  moveRow(by: -1 | 1): void {
    const { picture } = this;
    const { rows } = picture.layout;
    const now = picture.focus.value ? rows.findIndex(row => row.key === picture.focus.value!.key) : -1;
    let at = now < 0 ? this.firstRow() : now + by;
    while (rows[at] && !isFilled(rows[at])) at += by;
    if (!rows[at]) return;
    picture.reveal(at);
    picture.focus.value = { key: rows[at].key, row: -1 };
  }

  private firstRow(): number {
    return this.picture.visible().find(at => isFilled(this.picture.layout.rows[at])) ?? 0;
  }

  focusedRow(): Row | null {
    const focus = this.picture.focus.value;
    return (focus && this.picture.layout.rows.find(row => row.key === focus.key)) ?? null;
  }

  // Whoever presses Enter means the span that the keys before it lead to.
  async settled(): Promise<void> {
    await this.moving;
  }

  // The next span of the row that keys go through. False: there is none, and the focus may leave.
  // `then` is called when it has the focus.
  moveSpan(by: -1 | 1, then: () => void): boolean {
    const row = this.focusedRow();
    if (row?.waits) return this.moveWait(row, row.waits, by, then);
    return row?.lane ? this.moveInLane(row, row.lane, by, then) : false;
  }

  private moveWait(row: Row, waits: Strip, by: -1 | 1, then: () => void): boolean {
    const at = this.nextWait(waits, this.picture.focus.value!.row, by);
    if (at < 0 || at >= waits.rows.length) return false;
    this.picture.focus.value = { key: row.key, row: waits.rows[at] };
    this.showStretch([waits.start[at], waits.end[at]]);
    then();
    return true;
  }

  private nextWait(strip: Strip, item: number, by: -1 | 1): number {
    const [from, to] = this.picture.view.aim;
    if (item >= 0) return strip.rows.indexOf(item) + by;
    if (by > 0) return firstAtLeast(strip.reach, from);
    return firstAtLeast(strip.start, to) - 1;
  }

  private moveInLane(row: Row, lane: Lane, by: -1 | 1, then: () => void): boolean {
    const { spans, view } = this.picture;
    const item = this.picture.focus.value!.row;
    const now = item < 0 ? undefined : spans.known(item);
    if (item >= 0 && !now) return true; // it is on its way
    const place = now ? spans.placeIn(lane, now) + by : 0;
    if (place < 0 || place >= lane.count) return false;
    const next = now ? spans.at(lane, place) : by > 0 ? spans.reaching(lane, view.aim[0]) : spans.before(lane, view.aim[1]);
    this.moving = next.then(span => this.moved(row, span, then));
    return true;
  }

  private async moved(row: Row, span: OneSpan | null, then: () => void): Promise<void> {
    if (!span) return;
    await this.picture.spans.span(span.row); // what is said of it
    this.picture.focus.value = { key: row.key, row: span.row };
    this.picture.show(span);
    then();
  }

  private showStretch(stretch: Stretch): void {
    const [from, to] = this.picture.view.aim;
    if (stretch[0] >= from && stretch[1] <= to && stretch[1] - stretch[0] > (to - from) / 200) return;
    this.picture.view.show(padded(stretch, 1), true);
  }

  // The next hit of the search, by time, from the chosen one or from what can be seen.
  async nextHit(by: -1 | 1): Promise<void> {
    const { spans, view, isSearched, found } = this.picture;
    if (!isSearched) return;
    const now = chosen.value === null ? null : await spans.span(chosen.value);
    const [start, row] = now && found?.[now.cls] ? [now.start, now.row] : by > 0 ? [view.aim[0], -1] : [view.aim[1], spans.count];
    const hit = await spans.hit(start, row, by);
    if (hit) await this.choose(hit.row, true);
  }

  // The time and the tracks that a drag has touched, from one height to another; null: all tracks.
  areaOf(stretch: Stretch, y0: number, y1: number): Area {
    const { picture } = this;
    const [first, last] = [picture.rowAt(Math.max(0, Math.min(y0, y1))), picture.rowAt(Math.min(picture.height, Math.max(y0, y1)))];
    const { rows } = picture.layout;
    const touched = rows.slice(Math.max(0, first), last < 0 ? rows.length : last + 1);
    const found = [...new Set(touched.map(row => row.track).filter(track => track >= 0))];
    const all = new Set(rows.map(row => row.track).filter(track => track >= 0));
    const from = Math.round(stretch[0]);
    return {
      time: [from, Math.max(from + 1, Math.round(stretch[1]))],
      tracks: first < 0 || !found.length || found.length === all.size ? null : found,
    };
  }

  select(area: Area): void {
    batch(() => {
      time.value = area.time;
      selectedTracks.value = area.tracks;
    });
  }

  // The neighbour of a span with the same name and layer, where there is one.
  async goToSameName(row: number, by: -1 | 1): Promise<void> {
    const found = await this.picture.spans.ofSameName(row, by);
    if (found) await this.choose(found.row, true);
  }

  // The row's place, for what is said of it.
  placeInRow({ lane, waits }: Row, item: number): string {
    if (waits) return `${waits.rows.indexOf(item) + 1} of ${waits.rows.length}`;
    const span = this.picture.spans.known(item);
    return lane && span ? `${this.picture.spans.placeIn(lane, span) + 1} of ${lane.count}` : "";
  }
}

const isFilled = ({ lane, waits }: Row) => lane !== null || waits !== null;
