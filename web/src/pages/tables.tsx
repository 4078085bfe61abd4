// Every table of `layerscope table`: sorted, filtered, grouped, copied; a row leads to its spans.

import { useMemo, useRef, useState } from "preact/hooks";
import type { TableAbout } from "../data/head";
import type { Recording } from "../data/recording";
import { asCsv, asMarkdown, canBeAdded, filtered, grouped, isNumber, type Rows, sorted } from "../data/rows";
import { goTo, minor, moduleName, name, own, showInTimeline, step } from "../state/state";
import { cell, plural } from "../ui/format";
import { Loaded, useLoaded } from "../ui/loading";
import { Table } from "../ui/table";

const keyOf = (about: TableAbout) => (about.by ? `${about.name}-${about.by}` : about.name);
const titleOf = (about: TableAbout) => (about.by ? `${about.name} by ${about.by}` : about.name);

export function Tables({ recording }: { recording: Recording }) {
  const { tables } = recording.head;
  const wanted = own.value["table"] ?? "operators";
  const about = tables.find(one => keyOf(one) === wanted) ?? tables[0];
  if (!about) return <p>This report has no tables.</p>;
  return (
    <div class="tables">
      <label>
        Table{" "}
        <select value={keyOf(about)} onChange={event => goTo("tables", { table: event.currentTarget.value })}>
          {tables.map(one => (
            <option key={keyOf(one)} value={keyOf(one)}>{one.rows < 0 ? titleOf(one) : `${titleOf(one)} (${one.rows.toLocaleString("en-US")})`}</option>
          ))}
        </select>
      </label>
      <p class="quiet">{about.meaning}</p>
      <OneTable key={keyOf(about)} recording={recording} about={about} />
      <p class="quiet">
        In the terminal: <code>{about.command}</code>
      </p>
    </div>
  );
}

function set(key: string, value: string): void {
  minor(() => {
    own.value = { ...own.value, [key]: value };
  });
}

function OneTable({ recording, about }: { recording: Recording; about: TableAbout }) {
  const state = useLoaded(() => Promise.all([recording.aboutTable(about), recording.json<unknown[][]>(about.block)]), [about]);
  return (
    <Loaded state={state}>
      {([{ rows, columns, empty, notes }, values]) => (
        <>
          {rows ? <Shown recording={recording} all={{ columns, values, count: rows }} /> : <p>{empty}</p>}
          {notes.map(note => (
            <p key={note} class="note">{note}</p>
          ))}
        </>
      )}
    </Loaded>
  );
}

function Shown({ recording, all }: { recording: Recording; all: Rows }) {
  const words = own.value["where"] ?? "";
  const sort = own.value["sort"] ?? "";
  const by = own.value["group"] ?? "";
  const hidden = useMemo(() => new Set((own.value["without"] ?? "").split(",").filter(Boolean)), [own.value["without"]]);
  const left = useMemo(() => filtered(all, words), [all, words]);
  const rows = useMemo(() => (by && left ? grouped(all, left, by) : all), [all, left, by]);
  const order = useMemo(() => {
    const from = by || !left ? Int32Array.from({ length: rows.count }, (_, at) => at) : left;
    return sort ? sorted(rows, from, sort.replace("-", ""), sort.startsWith("-")) : from;
  }, [rows, left, by, sort]);
  const columns = rows.columns.map(column => column.name).filter(column => !hidden.has(column));
  const leads = !by && leadOf(all);
  return (
    <>
      <Controls all={all} words={words} by={by} hidden={hidden} isUnderstood={left !== null} />
      <p role="status" class="quiet">
        {left ? `${plural(order.length, "row")}${sumsOf(rows, order)}` : ""}
        <Copy rows={rows} order={order} columns={columns} />
      </p>
      <Table label="rows" rows={rows} order={order} columns={columns} originNs={recording.head.run.start_ns} sort={sort} onSort={next => set("sort", next)} {...(leads ? { onRow: leads } : {})} />
    </>
  );
}

// What is shown, added up where that means something.
function sumsOf(rows: Rows, order: Int32Array): string {
  const names = rows.columns.map(column => column.name);
  const at = names.includes("self_ns") ? names.indexOf("self_ns") : names.indexOf("total_ns");
  if (at < 0 || !canBeAdded(rows.columns[at]!, rows)) return "";
  let sum = 0;
  for (const row of order) sum += (rows.values[at]![row] as number | null) ?? 0;
  return `, ${rows.columns[at]!.name.replace("_ns", "")} ${cell(sum, "ns")}`;
}

// Where a row leads, by the columns that it has.
function leadOf(rows: Rows): ((row: number) => void) | null {
  const value = (column: string, row: number) => rows.values[rows.columns.findIndex(one => one.name === column)]?.[row];
  const names = new Set(rows.columns.map(column => column.name));
  if (names.has("step") && names.has("start_ns")) return row => showMoment(value, row);
  if (names.has("path")) return row => showInTimeline(() => (moduleName.value = String(value("path", row))));
  if (names.has("name") && names.has("count")) {
    return row =>
      showInTimeline(() => {
        name.value = String(value("name", row));
        if (names.has("module")) moduleName.value = String(value("module", row) ?? "");
      });
  }
  return null;
}

function showMoment(value: (column: string, row: number) => unknown, row: number): void {
  const process = value("process", row) as number | undefined;
  const number = String(value("step", row) ?? "");
  showInTimeline(() => (step.value = number && process !== undefined ? `${process}.${number}` : number));
}

interface ControlProps {
  all: Rows;
  words: string;
  by: string;
  hidden: Set<string>;
  isUnderstood: boolean;
}

function Controls({ all, words, by, hidden, isUnderstood }: ControlProps) {
  const field = useRef<HTMLInputElement>(null);
  const texts = all.columns.filter(column => !isNumber(column));
  return (
    <div class="controls">
      <label>
        Filter{" "}
        <input
          ref={field}
          data-search
          type="search"
          value={words}
          aria-invalid={!isUnderstood}
          placeholder="words, self_ns > 1ms"
          onInput={event => set("where", event.currentTarget.value)}
        />
      </label>
      {!isUnderstood && <span role="alert">A comparison needs the name of a column with numbers: self_ns {">"} 1ms</span>}
      <label>
        Group by{" "}
        <select value={by} onChange={event => set("group", event.currentTarget.value)}>
          <option value="">nothing</option>
          {texts.map(column => (
            <option key={column.name}>{column.name}</option>
          ))}
        </select>
      </label>
      <details class="columns">
        <summary>Columns</summary>
        {all.columns.map(column => (
          <label key={column.name}>
            <input type="checkbox" checked={!hidden.has(column.name)} onChange={() => set("without", toggled(hidden, column.name))} /> {column.name}
          </label>
        ))}
      </details>
    </div>
  );
}

function toggled(hidden: Set<string>, column: string): string {
  const now = new Set(hidden);
  if (!now.delete(column)) now.add(column);
  return [...now].join(",");
}

function Copy({ rows, order, columns }: { rows: Rows; order: Int32Array; columns: string[] }) {
  const [said, say] = useState("");
  const shown = rows.columns.map((column, at) => ({ column, at })).filter(({ column }) => columns.includes(column.name));
  const lines = () => Array.from(order, row => shown.map(({ at }) => rows.values[at]![row]));
  const copy = async (text: string, what: string) => {
    await navigator.clipboard.writeText(text);
    say(`copied as ${what}`);
    setTimeout(() => say(""), 1500);
  };
  const heads = shown.map(({ column }) => column);
  const printed = () => lines().map(line => line.map((value, at) => cell(value, heads[at]!.unit)));
  return (
    <span class="copy">
      <button type="button" onClick={() => copy(asCsv(heads, lines()), "CSV")}>Copy as CSV</button>
      <button type="button" onClick={() => copy(asMarkdown(heads, printed()), "Markdown")}>Copy as Markdown</button>
      {said}
    </span>
  );
}
