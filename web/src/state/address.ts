// The state of the page as the hash of its address: `#timeline?t=1.2-1.3s&name=aten::mm`. Short,
// readable, and enough to open the same picture again.

export interface Address {
  page: string;
  values: Record<string, string>;
}

export function parsed(hash: string): Address {
  const [page = "", query = ""] = hash.replace(/^#/, "").split("?", 2);
  const values: Record<string, string> = {};
  for (const part of query.split("&")) {
    const at = part.indexOf("=");
    if (at > 0) values[decoded(part.slice(0, at))] = decoded(part.slice(at + 1));
  }
  return { page: decoded(page), values };
}

export function written({ page, values }: Address): string {
  const parts = Object.entries(values)
    .filter(([, value]) => value !== "")
    .map(([key, value]) => `${key}=${encoded(value)}`);
  return `#${encoded(page)}${parts.length ? `?${parts.join("&")}` : ""}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text.replace(/\+/g, " "));
  } catch {
    return text; // somebody has cut the address
  }
}

// As encodeURIComponent, but what is harmless in a hash stays readable.
function encoded(text: string): string {
  return encodeURIComponent(text).replace(/%(?:3A|2F|2C|40|3B|24)/g, decodeURIComponent).replace(/%20/g, "+");
}

// A stretch of time, exact to the nanosecond: `1.2-1.3s`.
export function writtenTime([from, to]: readonly [number, number]): string {
  return `${seconds(from)}-${seconds(to)}s`;
}

export function parsedTime(text: string | undefined): [number, number] | null {
  const found = /^(-?\d+(?:\.\d{1,9})?)-(-?\d+(?:\.\d{1,9})?)s$/.exec(text ?? "");
  if (!found) return null;
  const [from, to] = [nanoseconds(found[1]!), nanoseconds(found[2]!)];
  return from <= to ? [from, to] : null;
}

export function seconds(ns: number): string {
  const whole = Math.round(Math.abs(ns));
  const rest = String(whole % 1e9).padStart(9, "0").replace(/0+$/, "");
  return `${ns < 0 ? "-" : ""}${Math.floor(whole / 1e9)}${rest && `.${rest}`}`;
}

export function nanoseconds(text: string): number {
  const [whole = "0", rest = ""] = text.replace("-", "").split(".");
  const ns = Number(whole) * 1e9 + Number(rest.padEnd(9, "0") || 0);
  return text.startsWith("-") ? -ns : ns;
}
