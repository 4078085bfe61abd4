// The stretch that can be seen as a table: its spans with the most self time.

import { useMemo } from "preact/hooks";
import type { TableColumn } from "../data/head";
import { sorted, type Rows } from "../data/rows";
import type { Spans } from "../data/spans";
import { firstAt } from "../data/statistics";
import type { Tracks } from "../data/tracks";
import { chosen, type Stretch, tracks as selectedTracks, view } from "../state/state";
import { count } from "../ui/format";
import { Table } from "../ui/table";
import type { Actions } from "./actions";
import { trackLabel } from "./selection_panel";
import { set, setting } from "./settings";

const MOST = 500;

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
  spans: Spans;
  tracks: Tracks;
  whole: Stretch;
}

export function VisibleTable({ actions, spans, tracks, whole }: Props) {
  const [from, to] = view.value ?? whole;
  const wanted = selectedTracks.value;
  const { rows, all, keys } = useMemo(() => rowsOf(spans, tracks, [from, to], wanted), [spans, from, to, wanted]);
  const sort = setting("order") || "-self_ns";
  const order = sorted(rows, Int32Array.from({ length: rows.count }, (_, at) => at), sort.replace("-", ""), sort.startsWith("-"));
  const words = all > rows.count ? `The ${count(rows.count)} spans with the most self time of ${count(all)} that are shown` : `All ${count(all)} spans that are shown`;
  return (
    <section aria-labelledby="tl-visible">
      <h2 id="tl-visible">{words}</h2>
      <Table
        label="spans that are shown"
        rows={rows}
        order={order}
        originNs={0}
        sort={sort}
        onSort={next => set("order", next)}
        onRow={row => actions.choose(keys[row])}
        chosen={chosen.value === null ? null : keys.indexOf(chosen.value)}
      />
    </section>
  );
}

function rowsOf(spans: Spans, tracks: Tracks, stretch: Stretch, wanted: readonly number[] | null): { rows: Rows; all: number; keys: number[] } {
  const found = overlapping(spans, stretch, wanted);
  found.sort((a, b) => spans.self[b] - spans.self[a] || a - b);
  const keys = Array.from(found.subarray(0, MOST));
  const values = [
    keys.map(row => spans.name(row)),
    keys.map(row => spans.about.layers[spans.classOf(row)[2]]),
    keys.map(row => trackLabel(tracks, spans.trackOf(row))),
    keys.map(row => spans.start[row]),
    keys.map(row => spans.dur[row]),
    keys.map(row => spans.self[row]),
    keys.map(row => (spans.step[row] ? spans.step[row] - 1 : null)),
  ];
  return { rows: { columns: COLUMNS, values, count: keys.length }, all: found.length, keys };
}

// The spans of which any part lies in a stretch.
function overlapping(spans: Spans, [from, to]: Stretch, wanted: readonly number[] | null): Uint32Array {
  const found = new Uint32Array(spans.count);
  let filled = 0;
  for (const track of wanted ?? spans.about.tracks) {
    const [first, last] = spans.range(track);
    const end = firstAt(spans.start, first, last, to);
    for (let row = first; row < end; row++) if (spans.start[row] + spans.dur[row] >= from) found[filled++] = row;
  }
  return found.slice(0, filled);
}
