// Where a thread computed: its samples of CPU time, by the place in the code.

import { firstAt } from "../data/statistics";
import type { Columns } from "../data/blocks";
import type { Recording } from "../data/recording";
import type { Places } from "./waits";

export interface PlaceSum {
  place: string;
  count: number;
  ns: number;
}

export class CpuSamples {
  private readonly at: Float64Array;
  private readonly cpu: number;

  constructor(
    private readonly samples: Columns,
    kinds: readonly string[],
  ) {
    this.at = Float64Array.from(samples["at"]);
    this.cpu = kinds.indexOf("cpu");
  }

  // Of a track in [from, to), by place; most time first.
  sums(places: Places, track: number, from: number, to: number): PlaceSum[] {
    const { stack, weight, count, kind } = this.samples;
    const [first, last] = this.rangeOf(track);
    const end = firstAt(this.at, first, last, to);
    const byStack = new Map<number, PlaceSum>();
    for (let row = firstAt(this.at, first, end, from); row < end; row++) {
      if (kind[row] !== this.cpu) continue;
      const sum = byStack.get(stack[row]) ?? { place: "", count: 0, ns: 0 };
      sum.count += count[row];
      sum.ns += weight[row];
      byStack.set(stack[row], sum);
    }
    return byPlace(places, byStack);
  }

  private rangeOf(track: number): [number, number] {
    const tracks = this.samples["track"] as Float64Array;
    return [firstAt(tracks, 0, tracks.length, track), firstAt(tracks, 0, tracks.length, track + 1)];
  }
}

// Different ways to one place are one.
function byPlace(places: Places, byStack: Map<number, PlaceSum>): PlaceSum[] {
  const sums = new Map<string, PlaceSum>();
  for (const [stack, { count, ns }] of byStack) {
    const place = (stack > 0 && places.of(stack - 1)) || "(no stack)";
    const sum = sums.get(place) ?? { place, count: 0, ns: 0 };
    sum.count += count;
    sum.ns += ns;
    sums.set(place, sum);
  }
  return [...sums.values()].sort((a, b) => b.ns - a.ns);
}

export async function cpuSamplesOf(recording: Recording): Promise<CpuSamples | null> {
  if (!recording.has("samples")) return null;
  const [samples, names] = await Promise.all([recording.columns("samples"), recording.json<{ kinds: string[] }>("sample_names")]);
  return new CpuSamples(samples, names.kinds);
}
