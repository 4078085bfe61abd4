// The frames of a flame graph as rows, each before those that it called.

import { useMemo, useState } from "preact/hooks";
import type { TableColumn } from "../data/head";
import { type Rows, sorted } from "../data/rows";
import { Table } from "../ui/table";
import type { FlameData } from "./data";
import type { Tree } from "./tree";

export function TreeTable({ data, tree }: { data: FlameData; tree: Tree }) {
  const [sort, setSort] = useState("");
  const rows = useMemo(() => rowsOf(data, tree), [data]);
  const order = useMemo(() => {
    const all = Int32Array.from({ length: rows.count }, (_, row) => row);
    return sort ? sorted(rows, all, sort.replace("-", ""), sort.startsWith("-")) : all;
  }, [rows, sort]);
  return <Table label="frames" rows={rows} order={order} originNs={0} sort={sort} onSort={setSort} />;
}

// How columns of weights end, by their unit.
const SUFFIXES: Record<string, string> = { ns: "_ns", bytes: "_bytes" };

function rowsOf(data: FlameData, tree: Tree): Rows {
  const { nodes, frames } = data;
  const order = walkOf(tree);
  const about = order.map(i => frames[nodes.frame[i]!]!);
  const suffix = SUFFIXES[data.unit] ?? "";
  const columns = [
    column("frame", "string", "", "its name"),
    column("layer", "string", "", "its layer"),
    column(`own${suffix}`, "int64", data.unit, "weight that lies in no frame in it"),
    column(`total${suffix}`, "int64", data.unit, "its weight"),
    column("total_share", "float64", "share", "its weight as a part of the whole"),
    column("count", "int64", "count", `${data.sampled ? "sample" : data.noun}s in it`),
    column("depth", "int64", "", "frames around it"),
    column("place", "string", "", "its source file or library"),
  ];
  const values = [
    about.map(({ label }) => label),
    about.map(({ layer }) => layer),
    order.map(i => nodes.own[i]!),
    order.map(i => nodes.total[i]!),
    order.map(i => nodes.total[i]! / (data.whole || 1)),
    order.map(i => nodes.count[i]!),
    order.map(i => nodes.depth[i]!),
    about.map(({ place }) => place),
  ];
  return { columns, values, count: order.length };
}

function column(name: string, type: string, unit: string, meaning: string): TableColumn {
  return { name, type, unit, meaning, instant: false, signed: false };
}

function walkOf(tree: Tree): number[] {
  const found: number[] = [];
  const open = [0];
  for (let i = open.pop(); i !== undefined; i = open.pop()) {
    found.push(i);
    open.push(...[...tree.children(i)].reverse());
  }
  return found;
}
