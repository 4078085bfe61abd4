// The filter by step, as the address has it. Steps are numbered in each process: `3` is step 3 of every
// process, `1.3` is that of the process with the key 1, and `10:20` are those from 10 to 19.

export interface StepFilter {
  process: number | null; // a key; null: every process
  from: number; // included
  to: number; // not included
}

interface Numbered {
  step: number;
  process: number;
  start: number;
  dur: number;
}

// Null: there is no filter. What is no step keeps nothing.
export function parsedStep(words: string): StepFilter | null {
  if (!words) return null;
  const found = /^(?:(\d+)\.)?(\d+)(?::(\d+))?$/.exec(words);
  if (!found) return { process: null, from: 0, to: 0 };
  const from = Number(found[2]);
  return { process: found[1] === undefined ? null : Number(found[1]), from, to: found[3] === undefined ? from + 1 : Number(found[3]) };
}

export function holdsStep(filter: StepFilter | null, { step, process }: { step: number; process: number }): boolean {
  return filter !== null && step >= filter.from && step < filter.to && (filter.process === null || filter.process === process);
}

// From the start of the first to the end of the last step that the filter keeps; null: it keeps none.
export function stretchOfSteps(steps: readonly Numbered[], words: string): readonly [number, number] | null {
  const filter = parsedStep(words);
  const held = steps.filter(one => holdsStep(filter, one));
  if (!held.length) return null;
  return [held.reduce((least, one) => Math.min(least, one.start), Infinity), held.reduce((most, one) => Math.max(most, one.start + one.dur), -Infinity)];
}

// `processes`: how those that have steps are called. Where there is one, it is not named.
export function stepLabel(words: string, processes: ReadonlyMap<number, string>): string {
  const [, process, number] = /^(\d+)\.(.*)$/.exec(words) ?? [undefined, undefined, words];
  if (process === undefined || (processes.size === 1 && processes.has(Number(process)))) return `step ${number}`;
  return `step ${number} of ${processes.get(Number(process)) ?? `process ${process}`}`;
}
