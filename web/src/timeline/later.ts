// What the timeline reads after its first picture: waits, counters, marks, links.

import type { Recording } from "../data/recording";
import type { SpanStore } from "../data/span_store";
import { WholeSpans } from "../data/whole_spans";
import type { Step, Tracks } from "../data/tracks";
import type { Stretch } from "../state/state";
import { type Series, seriesOf } from "./counters";
import { type CpuSamples, cpuSamplesOf } from "./cpu_samples";
import { type Arguments, argumentsOf } from "./arguments";
import { detailsOf } from "./one_span";
import type { Flag } from "./ruler";
import { type Places, placesOf, type Waits, waitsOf } from "./waits";

export interface Later {
  waits: Waits | null;
  places: Places | null;
  cpu: CpuSamples | null;
  series: readonly Series[];
  flags: readonly Flag[];
  args: Arguments;
}

interface Marks {
  at_ns: number[];
  kind: string[];
  name: string[];
}

export async function readLater(recording: Recording, spans: SpanStore, tracks: Tracks): Promise<Later> {
  const [waits, cpu, series, marks, args] = await Promise.all([
    waitsOf(recording),
    cpuSamplesOf(recording),
    seriesOf(recording, tracks),
    recording.json<Marks>("marks"),
    argumentsOf(recording),
  ]);
  if (spans instanceof WholeSpans) spans.know(await detailsOf(recording));
  const places = recording.has("stacks") ? await placesOf(recording) : null;
  const flags = marks.at_ns.map((at, i) => ({ at, kind: marks.kind[i], name: marks.name[i] }));
  return { waits, places, cpu, series, flags, args };
}

// The steps of each process that has any, by their start; the process with most of them first.
export function stepsByProcess(tracks: Tracks): Map<number, readonly Step[]> {
  const byProcess = new Map<number, Step[]>();
  for (const step of tracks.steps) {
    const of = byProcess.get(step.process);
    if (of) of.push(step);
    else byProcess.set(step.process, [step]);
  }
  for (const of of byProcess.values()) of.sort((a, b) => a.start - b.start);
  return new Map([...byProcess].sort(([, a], [, b]) => b.length - a.length));
}

// From the first span or step to the last, with a little room.
export function wholeOf(spans: SpanStore, tracks: Tracks, wall_ns: number): Stretch {
  let from = spans.first_ns;
  let to = spans.end_ns;
  for (const step of tracks.steps) {
    from = Math.min(from, step.start);
    to = Math.max(to, step.start + step.dur);
  }
  if (from > to) [from, to] = [0, wall_ns];
  const room = Math.max(Math.round((to - from) * 0.01), 500);
  return [from - room, to + room];
}
