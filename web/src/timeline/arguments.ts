// The arguments of spans by their keys, and words for what a span is.

import type { Recording } from "../data/recording";
import type { OneSpan, SpanStore } from "../data/span_store";
import type { Tracks } from "../data/tracks";

export class Arguments {
  private readonly texts: ReadonlyMap<number, string>;

  constructor({ keys, texts }: { keys: number[]; texts: string[] }) {
    this.texts = new Map(keys.map((key, at) => [key, texts[at]]));
  }

  // By their names; what is no object has none.
  of(key: number): [string, string][] {
    const text = this.texts.get(key);
    if (text === undefined) return [];
    const value: unknown = JSON.parse(text);
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [["arguments", asText(value)]];
    return Object.entries(value).map(([name, one]) => [name, asText(one)]);
  }
}

const asText = (value: unknown) => (typeof value === "string" ? value : JSON.stringify(value));

export async function argumentsOf(recording: Recording): Promise<Arguments> {
  return new Arguments(await recording.json<{ keys: number[]; texts: string[] }>("args"));
}

// Its kind in words, where that says more than its layer.
export function kindOf({ about }: SpanStore, { cls }: OneSpan): string {
  const [, kind, layer] = about.classes[cls];
  return `${about.layers[layer]}, ${about.kinds[kind]}`;
}

export function lineOf({ about }: SpanStore, { cls }: OneSpan): string {
  const line = about.classes[cls][4];
  return line < 0 ? "" : about.lines[line];
}

export function moduleOf({ about }: SpanStore, tracks: Tracks, { cls }: OneSpan): [string, string] {
  const module = about.classes[cls][3];
  return [tracks.modulePath.get(module) ?? "", tracks.moduleClass.get(module) ?? ""];
}
