// Rows of a table: filtered, grouped and sorted. Columns are arrays; a row is a place in them.

import type { TableColumn } from "./head";

export interface Rows {
  columns: TableColumn[];
  values: unknown[][]; // by column
  count: number;
}

type Test = (row: number) => boolean;

const UNITS: Record<string, number> = { ns: 1, us: 1e3, "\u00b5s": 1e3, ms: 1e6, s: 1e9, kb: 1e3, mb: 1e6, gb: 1e9, "%": 0.01 };
const COMPARISON = /(\w+)\s*(<=|>=|!=|=|<|>)\s*(-?[\d.]+(?:e-?\d+)?)\s*(ns|us|\u00b5s|ms|s|kb|mb|gb|%)?(?![\w.])/gi;
// A text that a column has, or a module that it has or that lies in it.
const EQUATION = /(\w+)\s+(is|in)\s+("(?:[^"\\]|\\.)*")/g;

// The rows that words and comparisons leave: `conv self_ns > 1ms`, `module in "Net.conv"`. Each word is
// looked for in all texts. Null: a comparison names no column that can be compared.
export function filtered(rows: Rows, words: string): Int32Array | null {
  const tests: (Test | null)[] = [];
  const rest = words
    .replace(EQUATION, (_, name: string, how: string, text: string) => {
      tests.push(equation(rows, name, how, text));
      return " ";
    })
    .replace(COMPARISON, (_, ...found: string[]) => {
      tests.push(comparison(rows, found));
      return " ";
    });
  for (const word of rest.split(/[\s,]+/)) if (word) tests.push(containing(rows, word.toLowerCase()));
  if (/[<>]/.test(rest) || tests.includes(null)) return null;
  const found: number[] = [];
  for (let row = 0; row < rows.count; row++) if (tests.every(test => test!(row))) found.push(row);
  return Int32Array.from(found);
}

// As the filter field has it: the module called `path`, and those in it.
export function within(column: string, path: string): string {
  return `${column} in ${JSON.stringify(path)}`;
}

function equation(rows: Rows, name: string, how: string, quoted: string): Test | null {
  const at = rows.columns.findIndex(column => column.name === name);
  const text = unquoted(quoted);
  if (at < 0 || text === null) return null;
  const values = rows.values[at]!;
  if (how === "is") return row => values[row] === text;
  return row => values[row] === text || String(values[row] ?? "").startsWith(`${text}.`);
}

function unquoted(text: string): string | null {
  try {
    return JSON.parse(text) as string;
  } catch {
    return null;
  }
}

function comparison(rows: Rows, [name, operator, number, unit]: string[]): Test | null {
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
  const sums = rows.columns.map((column, place) => ({ column, place })).filter(({ column }) => canBeAdded(column, rows));
  const columns = [rows.columns[at]!, COUNT, ...sums.map(({ column }) => column)];
  const keys = [...groups.keys()];
  const members = [...groups.values()];
  const added = sums.map(({ place }) => members.map(of => sum(rows.values[place]!, of)));
  return { columns, values: [keys, members.map(of => of.length), ...added], count: keys.length };
}

const COUNT: TableColumn = { name: "rows", type: "int64", unit: "count", meaning: "rows of the table", instant: false, signed: false };

// Sums of extremes, averages and ends of intervals mean nothing, and neither do those of times that
// lie in each other: total beside self.
export function canBeAdded(column: TableColumn, rows: Rows): boolean {
  if (!isNumber(column) || column.instant || column.unit === "ratio" || column.unit === "") return false;
  if (column.name.startsWith("total_") && rows.columns.some(one => one.name === "self_ns")) return false;
  return !/^(avg|min|max|p\d+|peak)_|_(low|high)$|^(process|pid|ppid|tid|rank|step|exit|line)$/.test(column.name);
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
