// What ran, how long a step takes, on what it is spent, and what is wrong with the recording.

import { useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import { type Step, tracksOf } from "../data/tracks";
import { goTo, name, showInTimeline, step, time } from "../state/state";
import { Bar, type Part } from "../ui/bar";
import { duration, percent, plural, threeDigits } from "../ui/format";
import { Loaded, useLoaded } from "../ui/loading";
import { StepChart } from "../ui/step_chart";

interface Operator {
  name: string;
  self_ns: number;
  share: number;
  calls: number;
  primitives: { what: string; ns: number }[];
  worker: string;
}

interface Operators {
  rows: Operator[];
  rest: Operator;
  rest_names: number;
  idle_ns: number | null;
  outside_share: number;
  layer: string;
  kinds: { name: string; ns: number; share: number }[];
  primitives: Operator[];
}

interface Steps {
  rule: string;
  count: number;
  warmup: number;
  measured: number;
  mean_ns: number;
  p50_ns: number;
  p95_ns: number;
  p99_ns: number;
  phases_ns: Record<string, number>;
  outliers: number;
  slowest_ns: number;
  drift: number | null;
  per_second: number;
}

interface Data {
  text: string;
  noun: string;
  steps: Steps | null;
  operators: Operators | null;
  modules: { rows: { name: string; of_class: string; self_ns: number }[] } | null;
  missing: string[];
  facts: string[];
  problems: { layer: string; sentence: string }[];
  cost: string;
}

export function Overview({ recording }: { recording: Recording }) {
  const state = useLoaded(() => Promise.all([recording.json<Data>("page overview"), tracksOf(recording)]), [recording]);
  return (
    <Loaded state={state}>
      {([data, tracks]) => (
        <div class="overview">
          <Verdict data={data} recording={recording} />
          {data.missing.map(sentence => (
            <p key={sentence} class="quiet">
              {sentence}
            </p>
          ))}
          <Problems data={data} />
          {data.steps && <StepTimes steps={data.steps} noun={data.noun} all={tracks.steps} />}
          {data.operators && (data.operators.rows.length > 0 || data.operators.primitives.length > 0) && <TopOperators operators={data.operators} noun={data.noun} />}
          <Facts data={data} />
          <details open={!data.operators}>
            <summary>The summary as text</summary>
            <pre>{data.text}</pre>
          </details>
        </div>
      )}
    </Loaded>
  );
}

function Verdict({ data, recording }: { data: Data; recording: Recording }) {
  const { run } = recording.head;
  const { steps, operators } = data;
  const parts: Part[] = operators?.kinds.length
    ? operators.kinds.map(kind => ({ label: kind.name, value: kind.ns }))
    : Object.entries(steps?.phases_ns ?? {}).map(([label, value]) => ({ label, value }));
  const what = steps ? `A ${data.noun} takes ${duration(steps.mean_ns)}` : run.wall_ns > 0 ? `The program took ${run.duration}` : "How long the program took is not known";
  return (
    <section aria-labelledby="verdict">
      <h2 id="verdict">
        {what}
        {steps && <small>{` on average; ${plural(steps.measured, data.noun)} measured of ${steps.count.toLocaleString("en-US")}`}</small>}
      </h2>
      <p class="command">
        <code>{run.command.join(" ")}</code>
      </p>
      <Bar label={steps ? `time of a ${data.noun}` : "time of the run"} parts={parts} />
      {steps && operators && operators.kinds.length > 0 && (
        <Bar label={`phases of a ${data.noun}`} parts={Object.entries(steps.phases_ns).map(([label, value]) => ({ label, value }))} />
      )}
    </section>
  );
}

function Problems({ data }: { data: Data }) {
  if (!data.problems.length) return null;
  return (
    <section aria-labelledby="problems" class="problems">
      <h2 id="problems">What is not in the recording</h2>
      <ul>
        {data.problems.map(problem => (
          <li key={problem.sentence}>{problem.sentence}</li>
        ))}
      </ul>
    </section>
  );
}

function StepTimes({ steps, noun, all }: { steps: Steps; noun: string; all: Step[] }) {
  const shown = all.filter(one => one.rule === steps.rule);
  return (
    <section aria-labelledby="steps">
      <h2 id="steps">{`${noun[0]!.toUpperCase()}${noun.slice(1)} times`}</h2>
      <p>
        {`Half take at most ${duration(steps.p50_ns)}, 95 % ${duration(steps.p95_ns)}, 99 % ${duration(steps.p99_ns)}; the slowest ${duration(steps.slowest_ns)}. `}
        {steps.drift !== null && Math.abs(steps.drift - 1) >= 0.05 && `The last third takes ${percent(Math.abs(steps.drift - 1))} ${steps.drift > 1 ? "more" : "less"} than the first. `}
      </p>
      <StepChart steps={shown} median={steps.p50_ns} onStep={showStep} />
    </section>
  );
}

function showStep(of: Step): void {
  showInTimeline(() => {
    time.value = [of.start, of.start + of.dur];
    step.value = of.address;
  });
}

function TopOperators({ operators, noun }: { operators: Operators; noun: string }) {
  const [isAll, setAll] = useState(false);
  const per = noun ? ` per ${noun}` : "";
  // A log of a library has nothing but what the program asked of it.
  const isOfLibrary = operators.rows.length === 0;
  const named = isOfLibrary ? operators.primitives : operators.rows;
  const rows = isAll || !operators.rest_names ? named : [...named, { ...operators.rest, name: "" }];
  return (
    <section aria-labelledby="operators">
      <h2 id="operators">{isOfLibrary ? "Primitives" : operators.layer === "ranges" ? "Ranges" : "Operators"} with the most self time</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="operators">
        <table class="top">
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col" class="number">{`self time${per}`}</th>
              <th scope="col" class="number">share</th>
              <th scope="col" class="number">{`calls${per}`}</th>
              <th scope="col">below it</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(row => (
              <tr key={row.name}>
                <th scope="row">
                  {row.name ? (
                    <button type="button" class="cell" onClick={() => showName(row.name)}>{row.name}</button>
                  ) : (
                    <button type="button" class="cell" onClick={() => goTo("tables", { table: "operators" })}>{`${operators.rest_names} more`}</button>
                  )}
                </th>
                <td class="number">{duration(row.self_ns)}</td>
                <td class="number">{percent(row.share)}</td>
                <td class="number">{row.calls ? threeDigits(row.calls) : ""}</td>
                <td>{row.primitives.map(one => `${one.what} ${duration(one.ns)}`).join(", ") || row.worker}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {isAll && <button type="button" onClick={() => setAll(false)}>Less</button>}
    </section>
  );
}

function showName(of: string): void {
  showInTimeline(() => (name.value = of));
}

function Facts({ data }: { data: Data }) {
  return (
    <section aria-labelledby="facts">
      <h2 id="facts">Resources and cost</h2>
      <ul>
        {data.facts.map(fact => (
          <li key={fact}>{fact}</li>
        ))}
        <li>{`Overhead of the recording: ${data.cost}`}</li>
      </ul>
    </section>
  );
}
