// Processes, tracks, modules and steps (show/report/tracks.py), and how they are called.

import type { Recording } from "./recording";

type Column<T> = T[];

interface About {
  processes: {
    process: Column<number>;
    pid: Column<number>;
    rank: Column<number | null>;
    role: Column<string | null>;
    argv: Column<string>;
  };
  tracks: {
    track: Column<number>;
    process: Column<number>;
    kind: Column<string>;
    tid: Column<number | null>;
    name: Column<string>;
  };
  modules: {
    module: Column<number>;
    parent: Column<number | null>;
    path: Column<string>;
    class: Column<string>;
  };
  steps: {
    step: Column<number>;
    process: Column<number>;
    rule: Column<string>;
    start_ns: Column<number>;
    dur_ns: Column<number>;
    warmup: Column<boolean>;
    load_ns: Column<number>;
    forward_ns: Column<number>;
    backward_ns: Column<number>;
    optimizer_ns: Column<number>;
    other_ns: Column<number>;
  };
}

export interface Process {
  process: number;
  label: string;
}

export interface Track {
  track: number;
  process: number;
  kind: string;
  label: string;
}

export interface Step {
  step: number;
  process: number;
  address: string; // as the filter by step names it
  rule: string;
  start: number;
  dur: number;
  warmup: boolean;
  phases: { name: string; ns: number }[];
}

export class Tracks {
  readonly processes: Process[];
  readonly tracks: Track[];
  readonly steps: Step[];
  // How the processes that have steps are called.
  readonly stepProcesses: ReadonlyMap<number, string>;
  readonly modulePath: ReadonlyMap<number, string>;
  readonly moduleClass: ReadonlyMap<number, string>;
  private readonly byTrack: Map<number, Track>;

  constructor(about: About) {
    const { processes, tracks, modules } = about;
    this.processes = processes.process.map((process, i) => ({ process, label: processLabel(processes, i) }));
    this.tracks = tracks.track.map((track, i) => ({
      track,
      process: tracks.process[i]!,
      kind: tracks.kind[i]!,
      label: trackLabel(tracks.name[i]!, tracks.tid[i] ?? null),
    }));
    this.byTrack = new Map(this.tracks.map(track => [track.track, track]));
    this.modulePath = new Map(modules.module.map((module, i) => [module, modules.path[i]!]));
    this.moduleClass = new Map(modules.module.map((module, i) => [module, modules.class[i]!]));
    const withSteps = new Set(about.steps.process);
    this.stepProcesses = new Map(this.processes.filter(({ process }) => withSteps.has(process)).map(({ process, label }) => [process, label]));
    this.steps = stepsOf(about.steps, (process, step) => this.stepAddress(process, step));
  }

  // Where several processes have steps, the process belongs to the number.
  stepAddress(process: number, step: number): string {
    return this.stepProcesses.size > 1 ? `${process}.${step}` : String(step);
  }

  track(track: number): Track | undefined {
    return this.byTrack.get(track);
  }
}

function processLabel(processes: About["processes"], i: number): string {
  const rank = processes.rank[i] ?? null;
  const role = rank === null ? (processes.role[i] ?? "process") : `rank ${rank}`;
  return `${role === "rank" || role === "program" ? "process" : role} ${processes.pid[i]}`;
}

function trackLabel(name: string, tid: number | null): string {
  if (tid === null) return name;
  return name ? `${name} ${tid}` : `thread ${tid}`;
}

const PHASES = ["loading", "forward", "backward", "optimizer", "other"] as const;

function stepsOf(steps: About["steps"], addressOf: (process: number, step: number) => string): Step[] {
  const columns = [steps.load_ns, steps.forward_ns, steps.backward_ns, steps.optimizer_ns, steps.other_ns];
  return steps.step.map((step, i) => ({
    step,
    process: steps.process[i]!,
    address: addressOf(steps.process[i]!, step),
    rule: steps.rule[i]!,
    start: steps.start_ns[i]!,
    dur: steps.dur_ns[i]!,
    warmup: steps.warmup[i]!,
    phases: PHASES.map((name, at) => ({ name, ns: columns[at]![i]! })),
  }));
}

// Null: of every process.
export function tracksOfProcess(tracks: Tracks, process: number | null): ReadonlySet<number> | null {
  if (process === null) return null;
  return new Set(tracks.tracks.filter(one => one.process === process).map(one => one.track));
}

const known = new WeakMap<Recording, Promise<Tracks>>();

export function tracksOf(recording: Recording): Promise<Tracks> {
  let asked = known.get(recording);
  if (!asked) {
    asked = recording.json<About>("tracks").then(about => new Tracks(about));
    known.set(recording, asked);
  }
  return asked;
}
