// The stretch that can be seen as a table: its spans with the most self time.

import { useMemo } from "preact/hooks";
import type { TableColumn } from "../data/head";
import { sorted, type Rows } from "../data/rows";
import { nameOf, type ShownSpans, type SpanStore } from "../data/span_store";
import type { Tracks } from "../data/tracks";
import { chosen, moduleName, name, type Stretch, step, tracks as selectedTracks, view } from "../state/state";
import { count } from "../ui/format";
import { Table } from "../ui/table";
import { useLatest } from "../ui/loading";
import type { Actions } from "./actions";
import { filterOf } from "./filter";
import { trackLabel } from "./selection_panel";
import { set, setting } from "./settings";

const column = (name: string, type: string, unit: string, instant = false): TableColumn => ({ name, type, unit, meaning: "", instant, signed: false });
const COLUMNS = [
  column("name", "string", ""),
  column("layer", "string", ""),
  column("thread", "string", ""),
  column("start_ns", "int64", "ns", true),
  column("dur_ns", "int64", "ns"),
  column("self_ns", "int64", "ns"),
  column("step", "int64", ""),
];

interface Props {
  actions: Actions;
  spans: SpanStore;
  tracks: Tracks;
  whole: Stretch;
}

export function VisibleTable({ actions, spans, tracks, whole }: Props) {
  const [from, to] = view.value ?? whole;
  const words = { name: name.value, moduleName: moduleName.value, step: step.value };
  const filter = useMemo(() => filterOf(spans, tracks, words, selectedTracks.value), [spans, ...Object.values(words), selectedTracks.value]);
  const shown = useLatest(useMemo(() => spans.shown(filter, from, to), [spans, filter, from, to, spans.answers.value]));
  const { rows, keys } = useMemo(() => rowsOf(spans, tracks, shown?.spans ?? []), [shown]);
  const sort = setting("order") || "-self_ns";
  const order = sorted(rows, Int32Array.from({ length: rows.count }, (_, at) => at), sort.replace("-", ""), sort.startsWith("-"));
  if (!shown) return <p class="quiet" role="status">Reading {"\u2026"}</p>;
  const { all } = shown;
  const isFiltered = Object.values(words).some(Boolean);
  const which = `that are shown${isFiltered ? " and pass the filters" : ""}`;
  const title = all > rows.count ? `The ${count(rows.count)} spans with the most self time of ${count(all)} ${which}` : `All ${count(all)} spans ${which}`;
  return (
    <section aria-labelledby="tl-visible">
      <h2 id="tl-visible">{title}</h2>
      <Table
        label="spans that are shown"
        rows={rows}
        order={order}
        originNs={0}
        sort={sort}
        onSort={next => set("order", next)}
        onRow={row => void actions.choose(keys[row])}
        chosen={chosen.value === null ? null : keys.indexOf(chosen.value)}
      />
    </section>
  );
}

function rowsOf(store: SpanStore, tracks: Tracks, spans: ShownSpans["spans"]): { rows: Rows; keys: number[] } {
  const { about } = store;
  const values = [
    spans.map(span => nameOf(store, span.cls)),
    spans.map(span => about.layers[about.classes[span.cls][2]]),
    spans.map(span => trackLabel(tracks, span.track)),
    spans.map(span => span.start),
    spans.map(span => span.dur),
    spans.map(span => span.self),
    spans.map(span => (span.step ? span.step - 1 : null)),
  ];
  return { rows: { columns: COLUMNS, values, count: spans.length }, keys: spans.map(span => span.row) };
}
