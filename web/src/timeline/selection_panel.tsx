// What is in the selection: spans by name, module, kind, layer, thread or primitive, and the waits.

import { useMemo } from "preact/hooks";
import type { TableColumn } from "../data/head";
import { sorted, type Rows } from "../data/rows";
import { EVERYTHING, type Filter, type SpanStore } from "../data/span_store";
import { holdsStep, parsedStep, stepLabel } from "../data/steps";
import type { GroupBy, StatisticsRow } from "../data/statistics";
import { type Tracks, tracksOfProcess } from "../data/tracks";
import { OUTSIDE } from "../flame/choice";
import { writtenTime } from "../state/address";
import { moduleName, name, type Stretch, step, time, tracks as selectedTracks, view } from "../state/state";
import { duration, plural } from "../ui/format";
import { Table } from "../ui/table";
import { useLatest } from "../ui/loading";
import { filterOf } from "./filter";
import { set, setting } from "./settings";
import type { Place, Waits } from "./waits";

const GROUPS: readonly [string, string][] = [
  ["name", "name"],
  ["module", "module"],
  ["kind", "kind"],
  ["layer", "layer"],
  ["track", "thread"],
  ["primitive", "primitive"],
];

const column = (name: string, type: string, unit: string, meaning: string): TableColumn => ({ name, type, unit, meaning, instant: false, signed: false });
const TIMES = [
  column("count", "int64", "count", "spans that start in the selection"),
  column("total_ns", "int64", "ns", "their durations, added up"),
  column("self_ns", "int64", "ns", "without what ran below them in the same layer"),
  column("avg_ns", "float64", "ns", "the mean duration"),
  column("min_ns", "int64", "ns", "the shortest duration"),
  column("p50_ns", "int64", "ns", "half of them take no longer"),
  column("p99_ns", "int64", "ns", "99 % of them take no longer"),
  column("max_ns", "int64", "ns", "the longest duration"),
];

interface Props {
  spans: SpanStore;
  tracks: Tracks;
  waits: Waits | null;
  whole: Stretch;
  isPart: boolean; // the page does not have all of the run
}

const ALWAYS: Stretch = [-Infinity, Infinity];

// What the statistics are of, and how that is called: the filters, and without time and step what is shown.
function selectionOf({ tracks, whole }: Props): { stretch: Stretch; words: string } {
  const { stretch, words } = stretchOf(tracks, whole);
  const named = name.value && `name ${name.value}`;
  const inModule = moduleName.value && (moduleName.value === OUTSIDE ? OUTSIDE : `module ${moduleName.value}`);
  return { stretch, words: [words, named, inModule].filter(Boolean).join(", ") };
}

function stretchOf(tracks: Tracks, whole: Stretch): { stretch: Stretch; words: string } {
  const ofStep = step.value && stepLabel(step.value, tracks.stepProcesses);
  if (time.value) {
    const words = `the selected ${duration(time.value[1] - time.value[0])} (${writtenTime(time.value)})`;
    return { stretch: time.value, words: ofStep ? `${words}, ${ofStep}` : words };
  }
  if (ofStep) return { stretch: ALWAYS, words: ofStep };
  if (view.value) return { stretch: view.value, words: "what is shown" };
  return { stretch: whole, words: "the whole run" };
}

// The number of a step that the page has no span of, as it holds a part of the run.
function missingStep({ spans, tracks, isPart }: Props): string {
  const filter = parsedStep(step.value);
  if (!filter || !isPart || !tracks.steps.some(one => holdsStep(filter, one))) return "";
  const { process, from, to } = filter;
  const own = tracksOfProcess(tracks, process);
  const of = { ...EVERYTHING, steps: [from, to] as const, tracks: own && [...own] };
  const found = spans.statistics(of, ...ALWAYS, "layer");
  return !found || found.length ? "" : stepLabel(step.value, tracks.stepProcesses);
}

export function SelectionPanel(props: Props) {
  const { spans, tracks, waits } = props;
  const { stretch, words } = selectionOf(props);
  const by = GROUPS.some(([key]) => key === setting("by")) ? setting("by") : "name";
  const sort = setting("sort") || "-self_ns";
  const selected = selectedTracks.value;
  const filters = { name: name.value, moduleName: moduleName.value, step: step.value };
  const filter = useMemo(() => filterOf(spans, tracks, filters, selected), [spans, tracks, selected, ...Object.values(filters)]);
  const now = useMemo(() => rowsOf(spans, tracks, by, stretch, filter), [spans, by, stretch[0], stretch[1], filter, spans.answers.value]);
  const rows = useLatest(now) ?? NO_ROWS;
  const order = useMemo(() => sorted(rows, Int32Array.from({ length: rows.count }, (_, at) => at), sort.replace("-", ""), sort.startsWith("-")), [rows, sort]);
  const lead = leadOf(rows, by);
  const chosenRow = name.value && (by === "name" || by === "primitive") ? (rows.values[0]?.indexOf(name.value) ?? -1) : -1;
  const where = selected ? ` on ${plural(selected.length, "thread")}` : "";
  const missing = rows.count || !now ? "" : missingStep(props);
  return (
    <section aria-labelledby="tl-selection" class="tl-selection" aria-busy={!now}>
      <h2 id="tl-selection">{`Statistics of ${words}${where}`}</h2>
      <div class="controls">
        <label>
          Group by{" "}
          <select value={by} onChange={event => set("by", event.currentTarget.value)}>
            {GROUPS.map(([key, label]) => (
              <option key={key} value={key}>{label}</option>
            ))}
          </select>
        </label>
        <span role="status" class="tl-sum">{sumOf(rows)}</span>
        {spans.about.is_thinned && <span class="note">Steps were left out of this recording: each span that was kept counts once here, whatever its weight.</span>}
      </div>
      {rows.count ? (
        <Table label="statistics of the selection" rows={rows} order={order} originNs={0} sort={sort} onSort={next => set("sort", next)} tall={340} chosen={chosenRow} {...(lead ? { onRow: lead } : {})} />
      ) : (
        <p>{!now ? "Reading \u2026" : missing ? `${missing[0].toUpperCase()}${missing.slice(1)} is not in this page: the report holds a part of the run.` : by === "primitive" ? "No primitives start in it." : "No spans start in it."}</p>
      )}
      {waits && !missing && <WaitTable waits={waits} stretch={stretch} tracks={filter.tracks} of={tracks} />}
    </section>
  );
}

// Self times of several layers lie in each other, so they are not added up.
function sumOf(rows: Rows): string {
  const at = (name: string) => (rows.values[rows.columns.findIndex(one => one.name === name)] as number[]).reduce((all, one) => all + one, 0);
  return rows.count ? plural(at("count"), "span") : "";
}

const NO_ROWS: Rows = { columns: [], values: [], count: 0 };

// Undefined: they are on their way.
function rowsOf(spans: SpanStore, tracks: Tracks, by: string, [from, to]: Stretch, filter: Filter): Rows | undefined {
  const group: GroupBy = by === "primitive" ? "name" : (by as GroupBy);
  const primitives = spans.about.layers.indexOf("primitives");
  const found = spans.statistics(filter, from, to, group)?.filter(row => by !== "primitive" || row.layer === primitives);
  if (!found) return undefined;
  const keys = found.map(row => labelOf(spans, tracks, group, row.key));
  const layers = group === "name" ? [found.map(row => spans.about.layers[row.layer] ?? "")] : [];
  const heads = [column(by === "track" ? "thread" : by, "string", "", ""), ...(layers.length ? [column("layer", "string", "", "")] : [])];
  const values = TIMES.map(({ name }) => found.map(row => (name === "avg_ns" ? row.total_ns / row.count : row[name as keyof StatisticsRow])));
  return { columns: [...heads, ...TIMES], values: [keys, ...layers, ...values], count: found.length };
}

function labelOf(spans: SpanStore, tracks: Tracks, by: GroupBy, key: number): string {
  if (by === "name") return spans.about.names[key];
  if (by === "module") return tracks.modulePath.get(key) ?? "(no module)";
  if (by === "kind") return spans.about.kinds[key] ?? "";
  if (by === "layer") return spans.about.layers[key] ?? "";
  return trackLabel(tracks, key);
}

export function trackLabel(tracks: Tracks, key: number): string {
  const track = tracks.track(key);
  if (!track) return `track ${key}`;
  const process = tracks.processes.find(one => one.process === track.process);
  return tracks.processes.length > 1 && process ? `${process.label}, ${track.label}` : track.label;
}

// A click on a row filters by it; a second click takes the filter away.
function leadOf(rows: Rows, by: string): ((row: number) => void) | null {
  const value = (row: number) => String(rows.values[0][row]);
  if (by === "name" || by === "primitive") return row => (name.value = name.value === value(row) ? "" : value(row));
  if (by === "module") return row => (moduleName.value = value(row) === moduleName.value || value(row) === "(no module)" ? "" : value(row));
  return null;
}

const WAIT_COLUMNS = [
  column("state", "string", "", "what the thread waited for"),
  column("count", "int64", "count", "waits that lie in the selection, at least in part"),
  column("total_ns", "int64", "ns", "how long they took in it, in all"),
  column("avg_ns", "float64", "ns", "the mean"),
];

interface WaitProps {
  waits: Waits;
  stretch: Stretch;
  tracks: readonly number[] | null;
  of: Tracks;
}

// Waits have time, tracks and a step; names and modules are those of spans.
function WaitTable({ waits, stretch, tracks, of }: WaitProps) {
  const found = waits.sumsOf(step.value ? placesOfSteps(of, stretch, tracks ?? waits.tracks) : [{ tracks, stretch }]);
  if (!found.length) return <p class="quiet">Nothing waited in it.</p>;
  const sort = setting("waits") || "-total_ns";
  const values = [found.map(one => one.state), found.map(one => one.count), found.map(one => one.ns), found.map(one => one.ns / one.count)];
  const rows: Rows = { columns: WAIT_COLUMNS, values, count: found.length };
  const order = sorted(rows, Int32Array.from(found.keys()), sort.replace("-", ""), sort.startsWith("-"));
  return (
    <>
      <h3>{name.value || moduleName.value ? "Waits in it, whatever ran" : "Waits in it"}</h3>
      <Table label="waits in the selection" rows={rows} order={order} originNs={0} sort={sort} onSort={next => set("waits", next)} tall={220} />
    </>
  );
}

// When the steps of the filter ran, and on the tracks of which process.
function placesOfSteps(all: Tracks, [from, to]: Stretch, tracks: readonly number[]): Place[] {
  const filter = parsedStep(step.value);
  const held = all.steps.filter(one => holdsStep(filter, one));
  return held.map(({ process, start, dur }) => ({
    tracks: tracks.filter(track => all.track(track)?.process === process),
    stretch: [Math.max(from, start), Math.min(to, start + dur)],
  }));
}
