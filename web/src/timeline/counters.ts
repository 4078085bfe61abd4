// What was read of counters, as lines: levels as they are, what only grows as how fast it does.

import type { Columns } from "../data/blocks";
import type { Recording } from "../data/recording";
import type { Tracks } from "../data/tracks";
import { bytes, duration, threeDigits } from "../ui/format";

interface Names {
  names: string[];
  units: string[];
  cumulative: string[];
  system: string[];
}

export interface Series {
  track: number;
  label: string;
  unit: string; // as it is printed with a value
  at: Float64Array;
  value: Float64Array;
  least: number;
  most: number;
}

export async function seriesOf(recording: Recording, tracks: Tracks): Promise<Series[]> {
  if (!recording.has("counters")) return [];
  const [columns, names] = await Promise.all([recording.columns("counters"), recording.json<Names>("counter_names")]);
  const { track, name } = columns as { track: Columns[string]; name: Columns[string] };
  const found: Series[] = [];
  for (let from = 0; from < track.length; ) {
    let to = from + 1;
    while (to < track.length && track[to] === track[from] && name[to] === name[from]) to++;
    const one = oneSeries(columns, names, tracks, from, to);
    if (one) found.push(one);
    from = to;
  }
  return found.sort((a, b) => (a.label < b.label ? -1 : a.label > b.label ? 1 : a.track - b.track));
}

function oneSeries(columns: Columns, names: Names, tracks: Tracks, from: number, to: number): Series | null {
  const track = columns["track"]![from]!;
  const name = names.names[columns["name"]![from]!]!;
  const unit = names.units[columns["unit"]![from]!] ?? "";
  const domain = tracks.track(track)?.label ?? "";
  const at = Float64Array.from(columns["at"]!.subarray(from, to));
  const value = Float64Array.from(columns["value"]!.subarray(from, to));
  const grows = names.system.includes(domain) && names.cumulative.includes(name);
  const label = `${domain} ${name}`;
  return grows ? growth({ track, label, unit, at, value, least: 0, most: 0 }) : bounded({ track, label, unit, at, value, least: 0, most: 0 });
}

// Every reading but the last becomes the growth a second until the next one.
function growth(of: Series): Series | null {
  if (of.at.length < 2) return null;
  const isTime = of.unit === "ns";
  const value = of.value.slice(0, -1).map((before, i) => {
    const passed = of.at[i + 1]! - of.at[i]!;
    const per_ns = passed > 0 ? (of.value[i + 1]! - before) / passed : 0;
    return isTime ? per_ns : per_ns * 1e9;
  });
  if (value.every(one => one === 0)) return null;
  const label = isTime ? of.label.replace(/_ns$/, "") : of.label;
  return bounded({ ...of, label, unit: isTime ? "CPUs" : `${of.unit}/s`, at: of.at.slice(0, -1), value });
}

function bounded(of: Series): Series {
  const least = of.value.reduce((a, b) => Math.min(a, b), 0);
  const most = of.value.reduce((a, b) => Math.max(a, b), 0);
  return { ...of, least, most: most > least ? most : least + 1 };
}

export function printed(of: Series, value: number): string {
  if (of.unit === "ns") return duration(value);
  if (of.unit === "bytes") return bytes(value);
  if (of.unit === "bytes/s") return `${bytes(value)}/s`;
  const number = Number.isInteger(value) ? value.toLocaleString("en-US") : threeDigits(value);
  return of.unit === "count" ? number : `${number} ${of.unit.replace(/^count/, "")}`.replace(" /s", "/s");
}
