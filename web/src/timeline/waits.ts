// Waits of threads: the samples of time that they did not run, each with its reason and who ended it.
//
// One that was measured from end to end is as long as it took. Another one stands for so much time, and
// how long it took is not known: it is drawn as a moment.

import type { Columns } from "../data/blocks";
import type { Recording } from "../data/recording";
import { partInside } from "../data/statistics";
import { firstAtLeast, type Strip, strip, stripsOf } from "./strips";

interface Names {
  kinds: string[];
  states: string[];
}

export interface WaitSum {
  state: string;
  count: number;
  ns: number;
}

export interface Place {
  tracks: readonly number[] | null; // null: all
  stretch: readonly [number, number]; // [from, to)
}

export class Waits {
  readonly states: readonly string[];
  private readonly byTrack = new Map<number, Strip>();

  constructor(
    private readonly samples: Columns,
    names: Names,
  ) {
    this.states = names.states;
    const { track, kind } = samples as { track: Columns[string]; kind: Columns[string] };
    const offcpu = names.kinds.indexOf("offcpu");
    const rows = Uint32Array.from(track.keys()).filter(row => offcpu >= 0 && kind[row] === offcpu);
    for (let from = 0; from < rows.length; ) {
      let to = from;
      while (to < rows.length && track[rows[to]!] === track[rows[from]!]) to++;
      this.byTrack.set(track[rows[from]!]!, this.stripOf(rows.slice(from, to)));
      from = to;
    }
  }

  get count(): number {
    return [...this.byTrack.values()].reduce((all, of) => all + of.rows.length, 0);
  }

  get tracks(): number[] {
    return [...this.byTrack.keys()];
  }

  usedStates(): string[] {
    return [...new Set([...this.codes()].map(code => this.states[code % this.states.length]))];
  }

  // Whether some were not measured from end to end.
  get hasSampled(): boolean {
    for (const code of this.codes()) if (code >= this.states.length) return true;
    return false;
  }

  private codes(): Set<number> {
    const used = new Set<number>();
    for (const of of this.byTrack.values()) for (const code of of.codes) used.add(code);
    return used;
  }

  strip(track: number): Strip | null {
    return this.byTrack.get(track) ?? null;
  }

  strips(track: number): Strip[] {
    const of = this.byTrack.get(track);
    return of ? stripsOf(of) : [];
  }

  state(row: number): string {
    return this.states[this.samples["state"]![row]!] ?? "unknown";
  }

  // Whether it was measured from end to end.
  isExact(row: number): boolean {
    return this.samples["exact"]![row] === 1;
  }

  // For how much time it stands; of one that is exact how long it took.
  weight(row: number): number {
    return this.samples["weight"]![row]!;
  }

  isIdle(row: number): boolean {
    return this.samples["idle"]![row] === 1;
  }

  // The thread that ended a wait; -1: that is not known.
  waker(row: number): number {
    return this.samples["waker"]![row]! - 1;
  }

  stack(row: number): number {
    return this.samples["stack"]![row]! - 1;
  }

  // Of those that lie in these places, at least in part: how many, and how long in them, by state; most time first.
  sumsOf(places: readonly Place[]): WaitSum[] {
    const sums = this.states.map(state => ({ state, count: 0, ns: 0 }));
    for (const place of places) this.addTo(sums, place);
    return sums.filter(({ count }) => count).sort((a, b) => b.ns - a.ns || b.count - a.count);
  }

  private addTo(sums: WaitSum[], { tracks, stretch: [from, to] }: Place): void {
    const stretch = [Math.round(from), Math.round(to)] as const;
    for (const track of tracks ?? this.tracks) {
      const of = this.byTrack.get(track);
      if (!of) continue;
      const end = firstAtLeast(of.start, stretch[1]);
      for (let at = firstAtLeast(of.reach, stretch[0]); at < end; at++) {
        const row = of.rows[at]!;
        const ns = partInside(stretch, of.start[at]!, of.end[at]! - of.start[at]!);
        if (!ns && of.start[at]! < stretch[0]) continue;
        const sum = sums[this.samples["state"]![row]!]!;
        sum.count++;
        sum.ns += this.isExact(row) ? ns : this.weight(row);
      }
    }
  }

  private stripOf(rows: Uint32Array): Strip {
    const start = Float64Array.from(rows, row => this.samples["at"]![row]!);
    const end = start.map((from, at) => (this.isExact(rows[at]!) ? from + this.weight(rows[at]!) : from));
    const codes = Uint16Array.from(rows, row => this.samples["state"]![row]! + (this.isExact(row) ? 0 : this.states.length));
    return strip(rows, start, end, codes);
  }
}

export async function waitsOf(recording: Recording): Promise<Waits | null> {
  if (!recording.has("samples")) return null;
  const [samples, names] = await Promise.all([recording.columns("samples"), recording.json<Names>("sample_names")]);
  const waits = new Waits(samples, names);
  return waits.count ? waits : null;
}

interface Frames {
  frame: number[];
  layer: string[];
  name: string[];
  file: (string | null)[];
  line: (number | null)[];
  object: (string | null)[];
}

// Where a thread waited: the innermost line of its own code, and the function that waits.
export class Places {
  private readonly atStack = new Map<number, number>();
  private readonly atFrame: Map<number, number>;

  constructor(
    private readonly stacks: Columns,
    private readonly frames: Frames,
  ) {
    stacks["stack"]?.forEach((stack: number, at: number) => this.atStack.set(stack, at));
    this.atFrame = new Map(frames.frame.map((frame, at) => [frame, at]));
  }

  of(stack: number): string {
    const inner = this.frameOf(stack);
    if (inner === undefined) return "";
    const python = this.python(stack);
    const { name, object } = this.frames;
    const what = `${name[inner]}${object[inner] ? ` (${object[inner]!.replace(/^.*\//, "")})` : ""}`;
    if (python === undefined) return what;
    const where = `${name[python]} (${this.frames.file[python]!.replace(/^.*\//, "")}:${this.frames.line[python]})`;
    return python === inner ? where : `${what}, from ${where}`;
  }

  private frameOf(stack: number): number | undefined {
    const at = this.atStack.get(stack);
    return at === undefined ? undefined : this.atFrame.get(this.stacks["frame"]![at]!);
  }

  private python(stack: number): number | undefined {
    for (let steps = 0, one = stack; one >= 0 && steps < 4096; steps++) {
      const frame = this.frameOf(one);
      if (frame !== undefined && this.frames.layer[frame] === "python" && this.frames.file[frame]) return frame;
      const at = this.atStack.get(one);
      one = at === undefined ? -1 : this.stacks["parent"]![at]! - 1;
    }
    return undefined;
  }
}

export async function placesOf(recording: Recording): Promise<Places> {
  const [stacks, frames] = await Promise.all([recording.columns("stacks"), recording.json<Frames>("frames")]);
  return new Places(stacks, frames);
}
