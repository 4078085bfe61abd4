// Numbers as people read them: three digits and a unit, as the terminal prints them.

export function threeDigits(value: number): string {
  const size = Math.abs(value);
  if (size < 9.995) return value.toFixed(2);
  if (size < 99.95) return value.toFixed(1);
  return Math.round(value).toLocaleString("en-US");
}

const TIMES: readonly [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "\u00b5s"],
];

export function duration(ns: number): string {
  for (const [size, unit] of TIMES) if (Math.abs(ns) >= size) return `${threeDigits(ns / size)} ${unit}`;
  return `${Math.round(ns)} ns`;
}

const SIZES: readonly [number, string][] = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
];

export function bytes(count: number): string {
  for (const [size, unit] of SIZES) if (Math.abs(count) >= size) return `${threeDigits(count / size)} ${unit}`;
  return `${count} B`;
}

export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}

export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

// A value of a table as its column's unit says; `row` holds the unit where each row has its own.
export function cell(value: unknown, unit: string, isInstant = false): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (unit === "ns") return isInstant ? `${(value / 1e9).toFixed(6)} s` : duration(value);
  if (unit === "bytes") return bytes(value);
  if (unit === "share") return percent(value);
  if (unit === "ratio") return threeDigits(value);
  return Number.isInteger(value) ? count(value) : threeDigits(value);
}
