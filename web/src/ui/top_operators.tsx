// The operators with the most self time: what they call, the line and the module with the most of it.

import type { TableAbout } from "../data/head";
import type { Recording } from "../data/recording";
import { goTo, name, showInTimeline } from "../state/state";
import { duration, percent, threeDigits } from "./format";

export interface Operator {
  name: string;
  self_ns: number;
  share: number;
  calls: number;
  primitives: { what: string; ns: number }[];
  worker: string;
}

export interface Operators {
  rows: Operator[];
  rest: Operator;
  rest_names: number;
  layer: string;
  kinds: { name: string; ns: number; share: number }[];
  primitives: Operator[];
}

// By name of an operator: the line, and the module, in which it spends most of its time.
export interface Places {
  line: Map<string, string>;
  module: Map<string, string>;
}

export const NO_PLACES: Places = { line: new Map(), module: new Map() };

export async function placesOf(recording: Recording): Promise<Places> {
  const [line, module] = await Promise.all([mostOf(recording, null, "line"), mostOf(recording, "module", "module")]);
  return { line, module };
}

// The rows of a table are by self time: the first one of a name has the most.
async function mostOf(recording: Recording, by: string | null, column: string): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  const known = recording.head.tables.find(table => table.name === "operators" && table.by === by);
  if (!known) return found;
  const about = await recording.aboutTable(known);
  if (!about.rows) return found;
  const values = await recording.json<unknown[][]>(about.block);
  const names = columnOf(about, values, "name");
  const places = columnOf(about, values, column);
  names.forEach((one, row) => {
    const place = places[row];
    if (typeof place === "string" && place && !found.has(String(one))) found.set(String(one), place);
  });
  return found;
}

function columnOf(about: TableAbout, values: unknown[][], column: string): unknown[] {
  return values[about.columns.findIndex(one => one.name === column)] ?? [];
}

interface Props {
  operators: Operators;
  idle: Operator | null;
  noun: string;
  places: Places;
}

export function TopOperators({ operators, idle, noun, places }: Props) {
  const per = noun ? ` per ${noun}` : "";
  // A log of a library has nothing but what the program asked of it.
  const isOfLibrary = operators.rows.length === 0;
  const rows = isOfLibrary ? operators.primitives : operators.rows;
  const what = isOfLibrary ? "Primitives" : operators.layer === "ranges" ? "Ranges" : "Operators";
  return (
    <section aria-labelledby="operators">
      <h2 id="operators">{what} with the most self time</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="operators">
        <table class="top">
          <thead>
            <tr>
              <th scope="col">name</th>
              <th scope="col" class="number">{`self time${per}`}</th>
              <th scope="col" class="number">share</th>
              <th scope="col" class="number">{`calls${per}`}</th>
              <th scope="col">below it</th>
              <th scope="col">mostly in</th>
              <th scope="col">mostly from</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(row => (
              <Row key={row.name} row={row} places={places} onName={() => showInTimeline(() => (name.value = row.name))} />
            ))}
            {operators.rest_names > 0 && (
              <Row row={{ ...operators.rest, name: `${operators.rest_names} more` }} places={places} onName={() => goTo("tables", { table: "operators" })} />
            )}
            {idle && <Row row={idle} places={places} />}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ row, places, onName }: { row: Operator; places: Places; onName?: () => void }) {
  const line = places.line.get(row.name) ?? "";
  return (
    <tr>
      <th scope="row">{onName ? <button type="button" class="cell" onClick={onName}>{row.name}</button> : row.name}</th>
      <td class="number">{duration(row.self_ns)}</td>
      <td class="number">{percent(row.share)}</td>
      <td class="number">{row.calls ? threeDigits(row.calls) : ""}</td>
      <td>{row.primitives.map(one => `${one.what} ${duration(one.ns)}`).join(", ") || row.worker}</td>
      <td>{places.module.get(row.name) ?? ""}</td>
      <td title={line}>{line.slice(line.lastIndexOf("/") + 1)}</td>
    </tr>
  );
}
