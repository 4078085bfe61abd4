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

function emptyColumn(bytes: number, rows: number): NumberColumn {
  if (bytes <= 1) return new Uint8Array(rows);
  if (bytes <= 2) return new Uint16Array(rows);
  if (bytes <= 4) return new Uint32Array(rows);
  return new Float64Array(rows);
}

function plainColumn(planes: Uint8Array, bytes: number, rows: number): NumberColumn {
  const column = emptyColumn(bytes, rows);
  addPlanes(column, planes, bytes, rows);
  return column;
}

function addPlanes(column: NumberColumn, planes: Uint8Array, bytes: number, rows: number): void {
  let factor = 1;
  for (let plane = 0; plane < bytes; plane++, factor *= 256) {
    const from = plane * rows;
    for (let row = 0; row < rows; row++) column[row]! += planes[from + row]! * factor;
  }
}

// Differences of neighbours added up, and 0, 1, 2, 3 as 0, -1, 1, -2 where there are signs.
function signedColumn(planes: Uint8Array, about: ColumnAbout, rows: number): Float64Array {
  const column = new Float64Array(rows);
  addPlanes(column, planes, about.bytes, rows);
  if (about.signed) {
    for (let row = 0; row < rows; row++) {
      const value = column[row]!;
      column[row] = value % 2 ? -(value + 1) / 2 : value / 2;
    }
  }
  if (about.mode === "delta") for (let row = 1; row < rows; row++) column[row]! += column[row - 1]!;
  return column;
}
