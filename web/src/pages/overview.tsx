// What ran, how long a step takes, on what it is spent, and what is wrong with the recording.

import { useEffect, useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import { type Step, type Tracks, tracksOf } from "../data/tracks";
import { goTo, showInTimeline, step, time } from "../state/state";
import type { Finding } from "./findings";
import { Bar, type Part } from "../ui/bar";
import { bytes, duration, percent, plural } from "../ui/format";
import { Loaded, useLoaded } from "../ui/loading";
import { type Operator, type Operators, NO_PLACES, type Places, placesOf, TopOperators } from "../ui/top_operators";
import { StepChart } from "../ui/step_chart";

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
  headline: string;
  failures: string[];
  idle: Operator | null;
  functions: Functions | null;
  cost: string;
  memory: { lines: string[]; categories: Record<string, number> } | null;
  worth: Pick<Finding, "rule" | "title" | "where" | "price" | "certainty" | "proven">[];
}

interface FunctionRow {
  name: string;
  self_ns: number;
  self_share: number;
  total_ns: number;
  total_share: number;
}

interface Functions {
  rows: FunctionRow[];
  is_total: boolean;
  table: string;
}

// Of a recording with many spans the tables of operators take a while: the page does not wait for them.
function usePlaces(recording: Recording): Places {
  const [found, setFound] = useState<Places>(NO_PLACES);
  useEffect(() => {
    if (recording.answers) placesOf(recording).then(setFound, () => {});
  }, [recording]);
  return found;
}

export function Overview({ recording }: { recording: Recording }) {
  const state = useLoaded(() => Promise.all([recording.json<Data>("page overview"), tracksOf(recording), recording.answers ? null : placesOf(recording)]), [recording]);
  const later = usePlaces(recording);
  return (
    <Loaded state={state}>
      {([data, tracks, places]) => <OverviewContent recording={recording} data={data} tracks={tracks} places={places ?? later} />}
    </Loaded>
  );
}

// All that the page shows; to be waited for.
export function overviewOf(recording: Recording): Promise<[Data, Tracks, Places]> {
  return Promise.all([recording.json<Data>("page overview"), tracksOf(recording), placesOf(recording)]);
}

interface Content {
  recording: Recording;
  data: Data;
  tracks: Tracks;
  places: Places;
}

export function OverviewContent({ recording, data, tracks, places }: Content) {
  return (
    <div class="overview">
      <Verdict data={data} recording={recording} />
      {data.worth.length > 0 && <WorthATry worth={data.worth} />}
      {data.missing.map(sentence => (
        <p key={sentence} class="quiet">
          {sentence}
        </p>
      ))}
      <Problems data={data} />
      {data.steps && <StepTimes steps={data.steps} noun={data.noun} all={tracks.steps} />}
      {data.operators && (data.operators.rows.length > 0 || data.operators.primitives.length > 0) && <TopOperators operators={data.operators} idle={data.idle} noun={data.noun} places={places} />}
      {data.functions && <TopFunctions functions={data.functions} />}
      {data.memory && <Memory memory={data.memory} />}
      <Facts data={data} />
      <details open={!data.operators}>
        <summary>The summary as text</summary>
        <pre>{data.text}</pre>
      </details>
    </div>
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
      <p>{data.headline}</p>
      {data.failures.filter(Boolean).map(sentence => (
        <p key={sentence} class="failed">{sentence}</p>
      ))}
      <Bar label={steps ? `time of a ${data.noun}` : "time of the run"} parts={parts} />
      {steps && operators && operators.kinds.length > 0 && (
        <Bar label={`phases of a ${data.noun}`} parts={Object.entries(steps.phases_ns).map(([label, value]) => ({ label, value }))} />
      )}
    </section>
  );
}

function WorthATry({ worth }: { worth: Data["worth"] }) {
  return (
    <section aria-labelledby="worth">
      <h2 id="worth">Worth a try</h2>
      <ol>
        {worth.map(one => (
          <li key={one.rule + one.title}>
            <button type="button" class="cell" onClick={() => goTo("findings")}>{one.title}</button>
            {`: saves ${one.price}`}
            {one.certainty !== "certain" && `; ${one.certainty}`}
            {one.proven && `; ${one.proven}`}
            {one.where && <> at <code>{one.where}</code></>}
          </li>
        ))}
      </ol>
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
      </p>
      <StepChart steps={shown} noun={noun} median={steps.p50_ns} onStep={showStep} />
    </section>
  );
}

function showStep(of: Step): void {
  showInTimeline(() => {
    time.value = [of.start, of.start + of.dur];
    step.value = of.address;
  });
}

function TopFunctions({ functions }: { functions: Functions }) {
  return (
    <section aria-labelledby="functions">
      <h2 id="functions">Functions with the most CPU time</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="functions">
        <table class="top">
          <thead>
            <tr>
              <th scope="col">name</th>
              {["with what it calls", "share", "self time", "share"].map((head, at) => (
                <th scope="col" class="number" key={at}>{head}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {functions.rows.map(row => (
              <tr key={row.name}>
                <th scope="row">
                  <button type="button" class="cell" onClick={() => goTo("tables", { table: functions.table, where: row.name })}>{row.name}</button>
                </th>
                <td class="number">{duration(row.total_ns)}</td>
                <td class="number">{percent(row.total_share)}</td>
                <td class="number">{duration(row.self_ns)}</td>
                <td class="number">{percent(row.self_share)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

// What was live at the highest moment, and what leaks.
function Memory({ memory }: { memory: NonNullable<Data["memory"]> }) {
  return (
    <section aria-labelledby="memory">
      <h2 id="memory">Memory</h2>
      {memory.lines.map(line => (
        <p key={line}>{line}</p>
      ))}
      <Bar label="live at the peak" parts={Object.entries(memory.categories).map(([label, value]) => ({ label, value }))} printed={bytes} />
      <p>
        <button type="button" class="cell" onClick={() => goTo("flame", { kind: "live" })}>By module and line</button>
      </p>
    </section>
  );
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
