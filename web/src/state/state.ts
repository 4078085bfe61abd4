// What is selected, in all pages at once. It lives in the address: each change writes it there, and
// back and forward read it again.

import { batch, computed, effect, signal } from "@preact/signals";
import { stepLabel } from "../data/steps";
import { parsed, parsedTime, written, writtenTime } from "./address";

export type Stretch = readonly [number, number]; // [from, to) in ns since the start of the run

export const page = signal("overview");
// Filters: each is a chip that one click takes away. Empty or null: not filtered.
export const time = signal<Stretch | null>(null);
export const name = signal("");
export const moduleName = signal("");
export const step = signal("");
export const tracks = signal<readonly number[] | null>(null);
// How the processes that have steps are called, once that is known.
export const stepProcesses = signal<ReadonlyMap<number, string>>(new Map());
// What the timeline shows, the moment that is marked, and the span that is chosen (a row).
export const view = signal<Stretch | null>(null);
export const mark = signal<Stretch | null>(null);
export const chosen = signal<number | null>(null);
// What belongs to one page alone, by its own words: the table that is shown, how it is sorted.
export const own = signal<Readonly<Record<string, string>>>({});

interface Field {
  read: (text: string | undefined) => void;
  write: () => string;
}

const text = (of: { value: string }): Field => ({
  read: found => (of.value = found ?? ""),
  write: () => of.value,
});
const stretch = (of: { value: Stretch | null }): Field => ({
  read: found => (of.value = same(of.value, parsedTime(found))),
  write: () => (of.value ? writtenTime(of.value) : ""),
});

// The fields of the address that all pages share.
const FIELDS: Record<string, Field> = {
  t: stretch(time),
  name: text(name),
  module: text(moduleName),
  step: text(step),
  tracks: {
    read: found => (tracks.value = found ? found.split(",").map(Number).filter(Number.isInteger) : null),
    write: () => tracks.value?.join(",") ?? "",
  },
  view: stretch(view),
  mark: stretch(mark),
  span: {
    read: found => (chosen.value = found && /^\d+$/.test(found) ? Number(found) : null),
    write: () => (chosen.value === null ? "" : String(chosen.value)),
  },
};

function same(before: Stretch | null, now: Stretch | null): Stretch | null {
  return before && now && before[0] === now[0] && before[1] === now[1] ? before : now;
}

const address = computed(() => {
  const values = Object.fromEntries(Object.entries(FIELDS).map(([key, field]) => [key, field.write()]));
  return written({ page: page.value, values: { ...values, ...own.value } });
});

function readAddress(pages: readonly string[]): void {
  const found = parsed(location.hash);
  batch(() => {
    page.value = pages.includes(found.page) ? found.page : (pages[0] ?? "");
    for (const [key, field] of Object.entries(FIELDS)) field.read(found.values[key]);
    const rest = Object.entries(found.values).filter(([key]) => !(key in FIELDS));
    own.value = Object.fromEntries(rest);
  });
}

// A frame in a notebook has no address of its own: the state lives in the page alone.
export const hasAddress = location.protocol !== "about:";

let isMinor = false;

// Keep the state and the address the same from now on.
export function followAddress(pages: readonly string[]): void {
  readAddress(pages);
  if (!hasAddress) return;
  const follow = () => {
    if (location.hash !== address.value) readAddress(pages);
  };
  // "popstate" comes with the new address itself, before anything that is late can write the old state over it.
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  effect(() => {
    const now = address.value;
    if (now === location.hash) return;
    if (isMinor || !location.hash) history.replaceState(null, "", now);
    else history.pushState(null, "", now);
  });
}

// Change the state without a new place to come back to: while the user pans, or types.
export function minor(change: () => void): void {
  isMinor = true;
  try {
    batch(change);
  } finally {
    isMinor = false;
  }
}

// Go to another page; what belonged to the page before is left behind.
export function goTo(next: string, ownValues: Record<string, string> = {}): void {
  batch(() => {
    if (page.value !== next || Object.keys(ownValues).length) own.value = ownValues;
    page.value = next;
  });
}

// Go to the timeline with these filters and no others: one place to come back from.
export function showInTimeline(select: () => void): void {
  batch(() => {
    goTo("timeline");
    time.value = null;
    name.value = moduleName.value = step.value = "";
    tracks.value = chosen.value = view.value = null;
    select();
  });
}

export interface Chip {
  label: string;
  remove: () => void;
}

// The filters that are set, for the bar of chips. `Escape` takes the last one away.
export const chips = computed<Chip[]>(() => {
  const found: Chip[] = [];
  if (time.value) found.push({ label: `time ${writtenTime(time.value)}`, remove: () => (time.value = null) });
  if (name.value) found.push({ label: `name ${name.value}`, remove: () => (name.value = "") });
  if (moduleName.value) found.push({ label: `module ${moduleName.value}`, remove: () => (moduleName.value = "") });
  if (step.value) found.push({ label: stepLabel(step.value, stepProcesses.value), remove: () => (step.value = "") });
  if (tracks.value) found.push({ label: `${tracks.value.length} track${tracks.value.length === 1 ? "" : "s"}`, remove: () => (tracks.value = null) });
  return found;
});
