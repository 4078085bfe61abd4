// What is under the mouse, or has the focus, in a few lines.

import { nameOf } from "../data/span_store";
import { count, duration } from "../ui/format";
import { printed } from "./counters";
import type { Later } from "./later";
import { kindOf, moduleOf } from "./arguments";
import type { Picture, Pointed } from "./picture";
import { trackLabel } from "./selection_panel";
import { firstAtLeast } from "./strips";

const MOST = 300;

export function describe(picture: Picture, later: Later | null, pointed: Pointed | null): string[] {
  if (!pointed) return [];
  const { row, item, at } = pointed;
  if (row.series) {
    const place = firstAtLeast(row.series.at, at + 1) - 1;
    return place < 0 ? [] : [row.label, printed(row.series, row.series.value[place])];
  }
  if (item < 0) return [];
  return row.waits ? ofWait(picture, later, pointed) : ofSpan(picture, item);
}

function ofSpan(picture: Picture, row: number): string[] {
  const { spans, tracks } = picture;
  const span = spans.known(row);
  if (!span) return [];
  const { self, dur } = span;
  const [path] = moduleOf(spans, tracks, span);
  const step = span.step ? `step ${count(span.step - 1)}` : "";
  const name = nameOf(spans, span.cls);
  const times = self === dur ? duration(dur) : `${duration(dur)}, self ${duration(self)}`;
  const lines = [name.length > MOST ? `${name.slice(0, MOST)}\u2026` : name || "(no name)", times, kindOf(spans, span)];
  const where = [path && `module ${path}`, step].filter(Boolean).join(", ");
  return where ? [...lines, where] : lines;
}

// Why a thread did not run, where it stood, and who woke it.
function ofWait({ tracks }: Picture, later: Later | null, { row, item }: Pointed): string[] {
  const waits = later?.waits;
  if (!waits || !row.waits) return [];
  if (row.waits.rows.indexOf(item) < 0) return [];
  const long = duration(waits.weight(item));
  const state = waits.state(item).replace("_", " ");
  const where = waits.stack(item) >= 0 ? (later.places?.of(waits.stack(item)) ?? "") : "";
  const waker = waits.waker(item);
  return [
    ...(waits.isExact(item) ? [`waited ${long}: ${state}`] : [`a sample of waits: ${state}`, `it stands for ${long}; how long this one took is not known`]),
    ...(waits.isIdle(item) ? ["idle: it had nothing to do"] : []),
    ...(where ? [`in ${where}`] : []),
    ...(waker >= 0 ? [`woken by ${trackLabel(tracks, waker)}`] : []),
  ];
}

