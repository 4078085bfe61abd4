// One recording as the page has it: its blocks, each read once, when somebody asks for it.

import { type BlockAbout, type Columns, columnsOf, fromBase64, inflated } from "./blocks";
import type { Head, TableAbout } from "./head";

// Where packed blocks come from: the page itself, or the server of `layerscope view`.
export interface Source {
  head: Head;
  packed(block: string): Promise<PackedBlock>;
  answers?: Answers;
}

// Answers of the server of `layerscope view` to questions about spans, of which a page cannot hold all.
export interface Answers {
  json<T>(question: string): Promise<T>;
  columns(question: string): Promise<PackedBlock>;
}

export interface PackedBlock {
  about: BlockAbout;
  data: Uint8Array<ArrayBuffer>;
}

export class Recording {
  readonly head: Head;
  private readonly source: Source;
  private readonly read = new Map<string, Promise<unknown>>();
  private compared: Recording | undefined;

  constructor(source: Source) {
    this.source = source;
    this.head = source.head;
  }

  // Null: the page has all spans.
  get answers(): Answers | null {
    return (this.head.has_many_spans && this.source.answers) || null;
  }

  // Whether a server has the blocks, and not the page.
  get isLive(): boolean {
    return this.source.answers !== undefined;
  }

  has(block: string): boolean {
    return block in this.head.blocks;
  }

  json<T>(block: string): Promise<T> {
    return this.once(block, data => JSON.parse(new TextDecoder().decode(data)) as T);
  }

  columns(block: string): Promise<Columns> {
    return this.once(block, (data, about) => columnsOf(about, data));
  }

  // The recording that this one is compared with: its blocks have "other " before their names.
  other(): Recording {
    this.compared ??= new Recording(otherSource(this.source));
    return this.compared;
  }

  // All about a table, of which the server of `layerscope view` may have told its name only.
  async aboutTable(about: TableAbout): Promise<TableAbout> {
    return about.rows < 0 ? this.json<TableAbout>(`about ${about.block}`) : about;
  }

  private once<T>(block: string, decode: (data: Uint8Array, about: BlockAbout) => T): Promise<T> {
    const known = this.read.get(block);
    if (known) return known as Promise<T>;
    const asked = this.asked(block, decode);
    this.read.set(block, asked);
    asked.catch(() => this.read.delete(block)); // the next one who asks may have more luck
    return asked;
  }

  private async asked<T>(block: string, decode: (data: Uint8Array, about: BlockAbout) => T): Promise<T> {
    if (!this.has(block)) throw new Error(`the report has no block ${block}`);
    const { about, data } = await this.source.packed(block);
    return decode(await inflated(data), about);
  }
}

// Where the page has its data: in itself, or at the server that it came from.
export function source(): Promise<Source> {
  return document.getElementById("head") ? Promise.resolve(inPage()) : fromServer();
}

const OTHER = "other ";
const OTHER_PATH = "/other"; // live_contents.py

function otherSource(source: Source): Source {
  const named = Object.entries(source.head.blocks).filter(([name]) => name.startsWith(OTHER));
  const blocks = Object.fromEntries(named.map(([name, about]) => [name.slice(OTHER.length), about]));
  const { answers } = source;
  const found = { head: { ...source.head, blocks, has_many_spans: !("spans" in blocks) }, packed: (block: string) => source.packed(OTHER + block) };
  if (!answers) return found;
  return { ...found, answers: { json: question => answers.json(OTHER_PATH + question), columns: question => answers.columns(OTHER_PATH + question) } };
}

// The blocks that stand in the page. Their text is let go once it was read.
function inPage(): Source {
  const head = JSON.parse(element("head").textContent) as Head;
  return {
    head,
    packed: async block => {
      const holder = element(`block ${block}`);
      const data = fromBase64(holder.textContent);
      holder.textContent = "";
      return { about: head.blocks[block]!, data };
    },
  };
}

// The blocks of the server of `layerscope view`, each with a header that says how it is read.
async function fromServer(): Promise<Source> {
  const head = (await (await answer("/head")).json()) as Head;
  return {
    head,
    packed: block => columnsAnswer(`/block/${encodeURIComponent(block)}`),
    answers: { json: async question => (await answer(question)).json(), columns: columnsAnswer },
  };
}

async function columnsAnswer(path: string): Promise<PackedBlock> {
  const response = await answer(path);
  const about = JSON.parse(response.headers.get("Layerscope-Block") ?? "") as BlockAbout;
  return { about, data: new Uint8Array(await response.arrayBuffer()) };
}

const NO_SERVER = "layerscope view does not answer any more; start it again, and open the address that it prints";

async function answer(path: string): Promise<Response> {
  const response = await fetch(path).catch(() => {
    throw new Error(NO_SERVER);
  });
  if (!response.ok) throw new Error(await response.text());
  return response;
}

function element(id: string): HTMLElement & { textContent: string } {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found as HTMLElement & { textContent: string };
}
