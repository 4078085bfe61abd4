// The network as a tree: forward, backward, self, share, calls, and the operators below.

import { useMemo, useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import { type Rows, within } from "../data/rows";
import { goTo, moduleName } from "../state/state";
import { cell } from "../ui/format";
import { Loaded, useLoaded } from "../ui/loading";

interface Node {
  path: string;
  label: string;
  depth: number;
  row: number;
  below: Node[];
}

export function Modules({ recording }: { recording: Recording }) {
  const state = useLoaded(() => tableOf(recording), [recording]);
  return <Loaded state={state}>{table => (table.rows.count ? <Tree rows={table.rows} /> : <p>{table.empty}</p>)}</Loaded>;
}

// The rows of the table, and what is to be said where there are none.
async function tableOf(recording: Recording): Promise<{ rows: Rows; empty: string }> {
  const named = recording.head.tables.find(table => table.name === "modules" && !table.by);
  if (!named) return { rows: { columns: [], values: [], count: 0 }, empty: "No modules were recorded." };
  const about = await recording.aboutTable(named);
  const values = about.rows ? await recording.json<unknown[][]>(about.block) : [];
  return { rows: { columns: about.columns, values, count: about.rows }, empty: about.empty };
}

function Tree({ rows }: { rows: Rows }) {
  const roots = useMemo(() => treeOf(rows), [rows]);
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const value = (column: string, row: number) => rows.values[rows.columns.findIndex(one => one.name === column)]![row] as number | null;
  const shown = flattened(roots, closed);
  const toggle = (path: string) => {
    const now = new Set(closed);
    if (!now.delete(path)) now.add(path);
    setClosed(now);
  };
  return (
    <>
    <p class="quiet">Times are those of the operators that ran in the calls of a module: self in no module inside of it.</p>
    <div class="scroll" tabIndex={0} role="region" aria-label="modules">
      <table class="top modules" role="treegrid" aria-label="modules">
        <thead>
          <tr>
            <th scope="col">module</th>
            {["total", "forward and other", "backward", "self", "share", "calls"].map(head => (
              <th scope="col" class="number" key={head}>{head}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map(node => (
            <tr key={node.path} aria-level={node.depth + 1} {...(node.below.length ? { "aria-expanded": !closed.has(node.path) } : {})}>
              <th scope="row" style={{ paddingLeft: `${1.2 * node.depth}em` }}>
                {node.below.length ? (
                  <button type="button" class="fold" aria-label={`${closed.has(node.path) ? "open" : "close"} ${node.path}`} onClick={() => toggle(node.path)}>
                    {closed.has(node.path) ? "\u25b8" : "\u25be"}
                  </button>
                ) : (
                  <span class="fold" />
                )}
                <button type="button" class="cell" onClick={() => showModule(node.path)}>{node.label}</button>{" "}
                <small>{String(value("class", node.row) ?? "")}</small>
              </th>
              <td class="number">{cell(value("total_ns", node.row), "ns")}</td>
              <td class="number">{cell(forward(value("total_ns", node.row), value("backward_ns", node.row)), "ns")}</td>
              <td class="number">{cell(value("backward_ns", node.row), "ns")}</td>
              <td class="number">{cell(value("self_ns", node.row), "ns")}</td>
              <td class="number">{cell(value("total_share", node.row), "share")}</td>
              <td class="number">{cell(value("calls", node.row), "count")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
    </>
  );
}

function forward(total: number | null, backward: number | null): number | null {
  return total === null ? null : total - (backward ?? 0);
}

function showModule(path: string): void {
  goTo("tables", { table: "operators-module", where: within("module", path) });
  moduleName.value = path;
}

// A path lies in the longest other path that it begins with.
function treeOf(rows: Rows): Node[] {
  const paths = rows.values[rows.columns.findIndex(column => column.name === "path")] as string[];
  const order = paths.map((path, row) => ({ path, row })).sort((a, b) => (a.path < b.path ? -1 : 1));
  const roots: Node[] = [];
  const open: Node[] = [];
  for (const { path, row } of order) {
    while (open.length && !path.startsWith(`${open.at(-1)!.path}.`)) open.pop();
    const around = open.at(-1);
    const node = { path, label: around ? path.slice(around.path.length + 1) : path, depth: open.length, row, below: [] };
    (around?.below ?? roots).push(node);
    open.push(node);
  }
  return roots;
}

function flattened(nodes: Node[], closed: ReadonlySet<string>): Node[] {
  return nodes.flatMap(node => [node, ...(closed.has(node.path) ? [] : flattened(node.below, closed))]);
}
