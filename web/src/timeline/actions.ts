// What mouse and keys do in the timeline.

import { batch } from "@preact/signals";
import { stretchOfSteps } from "../data/steps";
import { chosen, mark, type Stretch, step, time, tracks as selectedTracks } from "../state/state";
import type { Area, Picture } from "./picture";
import type { Row } from "./rows";
import { set, setting, toggle } from "./settings";
import { firstAtLeast, placeOf, type Strip } from "./strips";
import { padded } from "./view";

export class Actions {
  constructor(readonly picture: Picture) {}

  choose(row: number | null, isShown = false): void {
    chosen.value = row;
    if (row === null) return;
    this.open(row);
    if (isShown) this.picture.show(row);
    const at = this.picture.placeOfSpan(row);
    if (at >= 0) this.picture.focus.value = { key: this.picture.layout.rows[at].key, row };
  }

  // Open what a span is in, and take away the words that hide its thread.
  private open(row: number): void {
    const { picture } = this;
    if (picture.placeOfSpan(row) >= 0) return;
    const track = picture.spans.trackOf(row);
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
    if (chosen.value === null) return null;
    const start = spans.start[chosen.value];
    return [start, start + spans.dur[chosen.value]];
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
    while (rows[at] && !rows[at].strip) at += by;
    if (!rows[at]) return;
    picture.reveal(at);
    picture.focus.value = { key: rows[at].key, row: -1 };
  }

  private firstRow(): number {
    return this.picture.visible().find(at => this.picture.layout.rows[at].strip !== null) ?? 0;
  }

  focusedRow(): Row | null {
    const focus = this.picture.focus.value;
    return (focus && this.picture.layout.rows.find(row => row.key === focus.key)) ?? null;
  }

  // The next span of the row that keys go through. False: there is none, and the focus may leave.
  moveSpan(by: -1 | 1): boolean {
    const { picture } = this;
    const row = this.focusedRow();
    if (!row?.strip) return false;
    const at = this.nextPlace(row.strip, picture.focus.value!.row, by);
    if (at < 0 || at >= row.strip.rows.length) return false;
    const item = row.strip.rows[at];
    picture.focus.value = { key: row.key, row: item };
    if (row.isWaits) this.showStretch([row.strip.start[at], row.strip.end[at]]);
    else picture.show(item);
    return true;
  }

  private nextPlace(strip: Strip, item: number, by: -1 | 1): number {
    const [from, to] = this.picture.view.aim;
    if (item >= 0) return strip.rows.indexOf(item) + by;
    if (by > 0) return firstAtLeast(strip.reach, from);
    return firstAtLeast(strip.start, to) - 1;
  }

  private showStretch(stretch: Stretch): void {
    const [from, to] = this.picture.view.aim;
    if (stretch[0] >= from && stretch[1] <= to && stretch[1] - stretch[0] > (to - from) / 200) return;
    this.picture.view.show(padded(stretch, 1), true);
  }

  // The next hit of the search, by time, from the chosen one or from what can be seen.
  nextHit(by: -1 | 1): void {
    const found = this.hitBeyond(this.fromHit(by), by);
    if (found >= 0) this.choose(found, true);
  }

  private fromHit(by: -1 | 1): readonly [number, number] {
    const { picture } = this;
    const now = chosen.value;
    if (now !== null && picture.emphasis.isHit(now)) return [picture.spans.start[now], now];
    return by > 0 ? [picture.view.aim[0], -1] : [picture.view.aim[1], picture.spans.count];
  }

  // The first hit behind a moment, of all tracks; after the last one comes the first.
  private hitBeyond([start, row]: readonly [number, number], by: -1 | 1, isAgain = false): number {
    const { picture } = this;
    let best = -1;
    const isNearer = (one: number) => best < 0 || this.compared(one, best) * by < 0;
    for (const track of picture.spans.about.tracks) {
      for (const strip of picture.model.stripsOf(track)) {
        const hits = picture.emphasis.ofSearch(strip);
        const found = hits && this.beyond(hits, start, row, by);
        if (found !== null && found >= 0 && isNearer(found)) best = found;
      }
    }
    if (best >= 0 || isAgain) return best;
    return this.hitBeyond(by > 0 ? [-Infinity, -1] : [Infinity, picture.spans.count], by, true);
  }

  private beyond(hits: Strip, start: number, row: number, by: -1 | 1): number {
    let at = firstAtLeast(hits.start, start);
    if (by > 0) while (at < hits.rows.length && hits.start[at] === start && hits.rows[at] <= row) at++;
    else {
      while (at < hits.rows.length && hits.start[at] === start && hits.rows[at] < row) at++;
      at--;
    }
    return at >= 0 && at < hits.rows.length ? hits.rows[at] : -1;
  }

  private compared(a: number, b: number): number {
    return this.picture.spans.start[a] - this.picture.spans.start[b] || a - b;
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

  // The neighbour of a span with the same name and layer; -1: it was the last.
  ofSameName(row: number, by: -1 | 1): number {
    const { spans } = this.picture;
    const [name, , layer] = spans.classOf(row);
    for (let at = row + by; at >= 0 && at < spans.count; at += by) {
      const of = spans.classOf(at);
      if (of[0] === name && of[2] === layer) return at;
    }
    return -1;
  }

  // The row's place, for what is said of it.
  placeInRow(row: Row, item: number): string {
    if (!row.strip) return "";
    const at = row.isWaits ? row.strip.rows.indexOf(item) : placeOf(row.strip, item, this.picture.spans.start[item]);
    return `${at + 1} of ${row.strip.rows.length}`;
  }
}
