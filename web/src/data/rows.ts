// Rows of a table: filtered, grouped and sorted. Columns are arrays; a row is a place in them.

import type { TableColumn } from "./head";

export interface Rows {
  columns: TableColumn[];
  values: unknown[][]; // by column
  count: number;
}

type Test = (row: number) => boolean;

const UNITS: Record<string, number> = { ns: 1, us: 1e3, "\u00b5s": 1e3, ms: 1e6, s: 1e9, kb: 1e3, mb: 1e6, gb: 1e9, "%": 0.01 };
const COMPARISON = /^(\w+)\s*(<=|>=|!=|=|<|>)\s*(-?[\d.]+(?:e-?\d+)?)\s*([a-z\u00b5%]*)$/i;

// The rows that words and comparisons leave: `conv self_ns > 1ms, count >= 10`. Words are looked for
// in all texts. Null: a comparison names no column of numbers.
export function filtered(rows: Rows, words: string): Int32Array | null {
  const tests: Test[] = [];
  for (const part of words.split(",").map(one => one.trim())) {
    if (!part) continue;
    const test = testOf(rows, part);
    if (!test) return null;
    tests.push(test);
  }
  const found: number[] = [];
  for (let row = 0; row < rows.count; row++) if (tests.every(test => test(row))) found.push(row);
  return Int32Array.from(found);
}

function testOf(rows: Rows, part: string): Test | null {
  const found = COMPARISON.exec(part);
  return found ? comparison(rows, found) : containing(rows, part.toLowerCase());
}

function comparison(rows: Rows, [, name, operator, number, unit]: RegExpExecArray): Test | null {
  const at = rows.columns.findIndex(column => column.name === name);
  const factor = unit ? UNITS[unit.toLowerCase()] : 1;
  if (at < 0 || factor === undefined || !isNumber(rows.columns[at]!)) return null;
  const limit = Number(number) * factor;
  const compare = COMPARE[operator!]!;
  const values = rows.values[at]!;
  return row => typeof values[row] === "number" && compare(values[row] as number, limit);
}

const COMPARE: Record<string, (value: number, limit: number) => boolean> = {
  "<": (value, limit) => value < limit,
  "<=": (value, limit) => value <= limit,
  ">": (value, limit) => value > limit,
  ">=": (value, limit) => value >= limit,
  "=": (value, limit) => value === limit,
  "!=": (value, limit) => value !== limit,
};

function containing(rows: Rows, words: string): Test {
  const texts = rows.values.filter((_, at) => !isNumber(rows.columns[at]!));
  return row => texts.some(values => String(values[row] ?? "").toLowerCase().includes(words));
}

export function isNumber(column: TableColumn): boolean {
  return column.type === "int64" || column.type === "int32" || column.type === "float64";
}

// The same rows in another order. Empty cells come last, either way.
export function sorted(rows: Rows, order: Int32Array, name: string, descends: boolean): Int32Array {
  const at = rows.columns.findIndex(column => column.name === name);
  if (at < 0) return order;
  const values = rows.values[at]!;
  const sign = descends ? -1 : 1;
  return order.slice().sort((a, b) => compared(values[a], values[b], sign) || a - b);
}

function compared(a: unknown, b: unknown, sign: number): number {
  if (a === null || b === null) return (a === null ? 1 : 0) - (b === null ? 1 : 0);
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b));
}

// One row for each value of a column: sums of what can be added, and how many rows there were.
export function grouped(rows: Rows, order: Int32Array, name: string): Rows {
  const at = rows.columns.findIndex(column => column.name === name);
  const groups = new Map<unknown, number[]>();
  for (const row of order) {
    const key = rows.values[at]![row];
    const of = groups.get(key);
    if (of) of.push(row);
    else groups.set(key, [row]);
  }
  const sums = rows.columns.map((column, place) => ({ column, place })).filter(({ column }) => canBeAdded(column));
  const columns = [rows.columns[at]!, COUNT, ...sums.map(({ column }) => column)];
  const keys = [...groups.keys()];
  const members = [...groups.values()];
  const added = sums.map(({ place }) => members.map(of => sum(rows.values[place]!, of)));
  return { columns, values: [keys, members.map(of => of.length), ...added], count: keys.length };
}

const COUNT: TableColumn = { name: "rows", type: "int64", unit: "count", meaning: "rows of the table", instant: false, signed: false };

// Sums of extremes and averages mean nothing.
export function canBeAdded(column: TableColumn): boolean {
  if (!isNumber(column) || column.instant || column.unit === "ratio") return false;
  return !/^(avg|min|max|p\d+|peak)_|^(process|pid|ppid|tid|rank|step|exit|line)$/.test(column.name) && column.unit !== "";
}

function sum(values: unknown[], rows: number[]): number | null {
  const known = rows.map(row => values[row]).filter(value => typeof value === "number");
  return known.length ? (known as number[]).reduce((all, value) => all + value, 0) : null;
}

// As a file of comma-separated values, and as a table of Markdown: exact numbers.
export function asCsv(columns: TableColumn[], cells: unknown[][]): string {
  const quoted = (value: unknown) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  const lines = [columns.map(column => column.name), ...cells].map(line => line.map(quoted).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

export function asMarkdown(columns: TableColumn[], cells: string[][]): string {
  const escaped = (text: string) => text.replace(/[\\|]/g, "\\$&").replace(/\s+/g, " ");
  const line = (parts: string[]) => `| ${parts.map(escaped).join(" | ")} |`;
  const rule = columns.map(column => (isNumber(column) ? "---:" : "---"));
  return `${[line(columns.map(column => column.name)), `| ${rule.join(" | ")} |`, ...cells.map(line)].join("\n")}\n`;
}
