// Blocks of data as show/report/blocks.py writes them: JSON, or columns of integers in byte planes.

export interface ColumnAbout {
  name: string;
  bytes: number;
  mode: "plain" | "delta";
  signed: boolean;
}

export interface BlockAbout {
  kind: "json" | "columns";
  rows?: number;
  columns?: ColumnAbout[];
}

export type NumberColumn = Uint8Array | Uint16Array | Uint32Array | Float64Array;
export type Columns = Record<string, NumberColumn>;

// Bytes of base64, by the browser's own decoder where it has one.
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };
  if (native.fromBase64) return native.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

export async function inflated(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const unpacker = new DecompressionStream("deflate-raw");
  const writer = unpacker.writable.getWriter();
  // What cannot be unpacked fails where it is read.
  writer.write(packed).catch(() => {});
  writer.close().catch(() => {});
  return new Uint8Array(await new Response(unpacker.readable).arrayBuffer());
}

// The columns of a block, by name. Exact up to 2^53.
export function columnsOf(about: BlockAbout, data: Uint8Array): Columns {
  const rows = about.rows ?? 0;
  const found: Columns = {};
  let at = 0;
  for (const column of about.columns ?? []) {
    const planes = data.subarray(at, at + column.bytes * rows);
    found[column.name] = isPlain(column) ? plainColumn(planes, column.bytes, rows) : signedColumn(planes, column, rows);
    at += planes.length;
  }
  return found;
}

const isPlain = (column: ColumnAbout) => column.mode === "plain" && !column.signed;

function plainColumn(planes: Uint8Array, bytes: number, rows: number): NumberColumn {
  if (bytes === 0) return new Uint8Array(rows);
  if (bytes === 1) return planes.slice(0, rows);
  if (bytes === 2) return new Uint16Array(sideBySide(planes, bytes, rows, 2).buffer);
  return bytes <= 4 ? uint32s(planes, bytes, rows) : wideColumn(planes, bytes, rows);
}

function uint32s(planes: Uint8Array, bytes: number, rows: number): Uint32Array {
  return new Uint32Array(sideBySide(planes, bytes, rows, 4).buffer);
}

function wideColumn(planes: Uint8Array, bytes: number, rows: number): Float64Array {
  const low = uint32s(planes, 4, rows);
  const high = uint32s(planes.subarray(4 * rows), bytes - 4, rows);
  const column = new Float64Array(rows);
  for (let row = 0; row < rows; row++) column[row] = high[row]! * 2 ** 32 + low[row]!;
  return column;
}

// The bytes of each number next to each other, as memory has them (all machines with a browser store the lowest
// first): to add planes up as numbers takes three times as long.
function sideBySide(planes: Uint8Array, bytes: number, rows: number, width: number): Uint8Array<ArrayBuffer> {
  const found = new Uint8Array(rows * width);
  for (let plane = 0; plane < bytes; plane++) {
    const from = plane * rows;
    for (let row = 0, at = plane; row < rows; row++, at += width) found[at] = planes[from + row]!;
  }
  return found;
}

// Differences of neighbours added up, and 0, 1, 2, 3 as 0, -1, 1, -2 where there are signs.
function signedColumn(planes: Uint8Array, about: ColumnAbout, rows: number): Float64Array {
  const column = new Float64Array(plainColumn(planes, about.bytes, rows));
  if (about.signed) {
    for (let row = 0; row < rows; row++) {
      const value = column[row]!;
      column[row] = value % 2 ? -(value + 1) / 2 : value / 2;
    }
  }
  if (about.mode === "delta") for (let row = 1; row < rows; row++) column[row]! += column[row - 1]!;
  return column;
}
