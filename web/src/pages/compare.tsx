// This recording against another one: verdicts with intervals, step times over each other, and a step
// of each below the other on one scale.

import { useState } from "preact/hooks";
import type { TableColumn } from "../data/head";
import type { Recording } from "../data/recording";
import { type Rows, sorted } from "../data/rows";
import { spansOf } from "../data/spans";
import { storeOf } from "../data/store";
import type { WindowSpans } from "../data/window_spans";
import { tracksOf } from "../data/tracks";
import { minor, own } from "../state/state";
import { Histograms } from "../ui/histograms";
import { duration, percent } from "../ui/format";
import { Loaded, useLoaded } from "../ui/loading";
import { StepStrips, type StripSpans } from "../ui/step_strips";
import { Table } from "../ui/table";

interface Side {
  name: string;
  command: string;
  durations_ns: number[]; // of the measured steps
}

interface Data {
  a: Side;
  b: Side;
  columns: TableColumn[];
  values: unknown[][];
  notes: string[];
}

const SURE = ["slower", "faster", "added", "gone"];

export function Compare({ recording }: { recording: Recording }) {
  const state = useLoaded(() => recording.json<Data>("page compare"), [recording]);
  return (
    <Loaded state={state}>
      {data => (
        <div class="compare">
          <Verdict data={data} />
          {data.notes.map(note => (
            <p key={note} class="note">{note}</p>
          ))}
          <Changes data={data} recording={recording} />
          <Distributions data={data} />
          <Strips data={data} recording={recording} />
        </div>
      )}
    </Loaded>
  );
}

function valueOf(data: Data, column: string, row: number): unknown {
  return data.values[data.columns.findIndex(one => one.name === column)]![row];
}

function rowCount(data: Data): number {
  return data.values[0]?.length ?? 0;
}

function Verdict({ data }: { data: Data }) {
  const whole = Array.from({ length: rowCount(data) }, (_, row) => row).find(row => ["step", "run"].includes(String(valueOf(data, "what", row))));
  return (
    <section aria-labelledby="compared">
      <h2 id="compared">{whole === undefined ? "There is nothing to compare." : sentence(data, whole)}</h2>
      <p>
        Before (A): <code>{data.a.name}</code>, now (B): <code>{data.b.name}</code>
      </p>
    </section>
  );
}

function sentence(data: Data, row: number): string {
  const number = (column: string) => valueOf(data, column, row) as number | null;
  const [a, b, change, low, high] = ["a_ns", "b_ns", "change", "change_low", "change_high"].map(number);
  const what = valueOf(data, "what", row) === "step" ? "A step takes" : "The run takes";
  if (a === null || b === null || a === undefined || b === undefined) return `${what} ${duration(b ?? a ?? 0)}`;
  const interval = low != null && high != null ? `, with 95 % between ${signed(low)} and ${signed(high)}` : "";
  return `${what} ${duration(b)}, before ${duration(a)}: ${signed(change ?? 0)}${interval}: ${String(valueOf(data, "verdict", row))}`;
}

const signed = (share: number) => `${share > 0 ? "+" : share < 0 ? "\u2212" : ""}${percent(Math.abs(share))}`;

function Changes({ data, recording }: { data: Data; recording: Recording }) {
  const rows: Rows = { columns: data.columns, values: data.values, count: rowCount(data) };
  const sort = own.value["sort"] ?? "";
  const order = sort ? sorted(rows, allOf(rows), sort.replace("-", ""), sort.startsWith("-")) : bySureness(data);
  return (
    <section aria-labelledby="changes">
      <h2 id="changes">What changed</h2>
      <Table label="changes" rows={rows} order={order} originNs={recording.head.run.start_ns} sort={sort} onSort={next => minor(() => (own.value = { ...own.value, sort: next }))} />
    </section>
  );
}

const allOf = (rows: Rows) => Int32Array.from({ length: rows.count }, (_, row) => row);

// What is sure comes first, the largest change before the others.
function bySureness(data: Data): Int32Array {
  const isSure = (row: number) => SURE.includes(String(valueOf(data, "verdict", row)));
  const size = (row: number) => Math.abs((valueOf(data, "change_ns", row) as number | null) ?? 0);
  const rows = Array.from({ length: rowCount(data) }, (_, row) => row);
  return Int32Array.from(rows.sort((a, b) => Number(isSure(b)) - Number(isSure(a)) || size(b) - size(a) || a - b));
}

function Distributions({ data }: { data: Data }) {
  if (!data.a.durations_ns.length || !data.b.durations_ns.length) return null;
  return (
    <section aria-labelledby="distributions">
      <h2 id="distributions">Step times</h2>
      <Histograms
        series={[
          { label: `before: ${data.a.name}`, values: data.a.durations_ns },
          { label: `now: ${data.b.name}`, values: data.b.durations_ns },
        ]}
      />
    </section>
  );
}

// Spans that the page has, or that the server is asked for.
function spansFor(recording: Recording): Promise<StripSpans> {
  return recording.answers ? storeOf(recording).then(store => store as WindowSpans) : spansOf(recording);
}

function Strips({ data, recording }: { data: Data; recording: Recording }) {
  const [number, setNumber] = useState<number | null>(null);
  const before = recording.other();
  const state = useLoaded(
    () => Promise.all([spansFor(before), tracksOf(before), spansFor(recording), tracksOf(recording)]),
    [recording],
  );
  if (!data.a.durations_ns.length || !data.b.durations_ns.length) return null;
  return (
    <section aria-labelledby="strips">
      <h2 id="strips">A step of each, on one scale</h2>
      <Loaded state={state}>
        {([spansA, tracksA, spansB, tracksB]) => (
          <StepStrips
            sides={[
              { label: `before: ${data.a.name}`, spans: spansA, tracks: tracksA },
              { label: `now: ${data.b.name}`, spans: spansB, tracks: tracksB },
            ]}
            step={number}
            onStep={setNumber}
          />
        )}
      </Loaded>
    </section>
  );
}
