// A table of any length: only the rows that can be seen are in the document, with real table roles.

import { useEffect, useRef, useState } from "preact/hooks";
import type { TableColumn } from "../data/head";
import { isNumber, type Rows } from "../data/rows";
import { cell } from "./format";

const ROW_PX = 26;
const SPARE_ROWS = 8;
const HEIGHT_PX = 560;

interface Props {
  label: string;
  rows: Rows;
  order: Int32Array;
  columns?: readonly string[]; // which are shown; all otherwise
  originNs: number; // what instants are counted from
  sort: string; // `name` or `-name`
  onSort: (sort: string) => void;
  onRow?: (row: number) => void;
  chosen?: number | null;
  tall?: number;
}

export function Table(props: Props) {
  const { rows, order } = props;
  const holder = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const height = Math.min(props.tall ?? HEIGHT_PX, (order.length + 1) * ROW_PX + 18);
  const first = Math.max(0, Math.floor(top / ROW_PX) - SPARE_ROWS);
  const last = Math.min(order.length, Math.ceil((top + height) / ROW_PX) + SPARE_ROWS);
  useEffect(() => {
    if (holder.current) holder.current.scrollTop = 0;
    setTop(0);
  }, [rows, order]);
  const shown = rows.columns.map((column, at) => ({ column, at })).filter(({ column }) => isShown(props, column));
  const unitAt = rows.columns.findIndex(column => column.name === "unit");
  return (
    <div class="table" ref={holder} style={{ height: `${height}px` }} onScroll={event => setTop(event.currentTarget.scrollTop)} tabIndex={0} role="region" aria-label={props.label}>
      <table aria-rowcount={order.length + 1}>
        <thead>
          <tr aria-rowindex={1}>
            {shown.map(({ column }) => (
              <Heading key={column.name} column={column} label={labelOf(column, rows)} sort={props.sort} onSort={props.onSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          <tr class="spare" style={{ height: `${first * ROW_PX}px` }} aria-hidden="true" />
          {Array.from(order.subarray(first, last), (row, at) => (
            <tr key={row} aria-rowindex={first + at + 2} class={rowClass(props, row)} onClick={() => props.onRow?.(row)}>
              {shown.map(({ column, at: place }) => {
                const unit = column.unit.startsWith("by row") ? String(rows.values[unitAt]?.[row] ?? "") : column.unit;
                const value = rows.values[place]![row];
                const said = cell(column.instant && typeof value === "number" ? value - props.originNs : value, unit, column.instant);
                return (
                  <td key={column.name} class={isNumber(column) ? "number" : ""} title={typeof value === "string" ? value : exact(value)}>
                    {place === shown[0]!.at && props.onRow ? <button type="button" class="cell" onClick={event => activate(event, props, row)}>{said || "\u00a0"}</button> : said}
                  </td>
                );
              })}
            </tr>
          ))}
          <tr class="spare" style={{ height: `${(order.length - last) * ROW_PX}px` }} aria-hidden="true" />
        </tbody>
      </table>
    </div>
  );
}

function activate(event: Event, props: Props, row: number): void {
  event.stopPropagation();
  props.onRow?.(row);
}

function exact(value: unknown): string {
  return typeof value === "number" ? value.toLocaleString("en-US", { maximumFractionDigits: 6 }) : "";
}

function isShown(props: Props, column: TableColumn): boolean {
  return !props.columns || props.columns.includes(column.name);
}

function rowClass(props: Props, row: number): string {
  return `${props.onRow ? "leads" : ""} ${props.chosen === row ? "chosen" : ""}`.trim();
}

// Without its unit, where that leaves it apart from the others: cells have theirs.
function labelOf(column: TableColumn, rows: Rows): string {
  const short = column.name.replace(/_ns$|_bytes$/, "");
  return rows.columns.some(one => one !== column && one.name === short) ? column.name : short;
}

interface HeadingProps {
  column: TableColumn;
  label: string;
  sort: string;
  onSort: (sort: string) => void;
}

function Heading({ column, label, sort, onSort }: HeadingProps) {
  const isSorted = sort.replace("-", "") === column.name;
  const descends = sort.startsWith("-");
  const next = isSorted ? (descends ? column.name : `-${column.name}`) : `${isNumber(column) ? "-" : ""}${column.name}`;
  return (
    <th scope="col" class={isNumber(column) ? "number" : ""} aria-sort={isSorted ? (descends ? "descending" : "ascending") : "none"}>
      <button type="button" title={column.meaning} onClick={() => onSort(next)}>
        {label}
        <span aria-hidden="true">{isSorted ? (descends ? " \u25bc" : " \u25b2") : ""}</span>
      </button>
    </th>
  );
}
