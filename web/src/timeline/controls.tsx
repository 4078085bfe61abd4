// What stands above the picture: filter of tracks, layers, buttons for what keys do, and the legend.

import type { SpanAbout } from "../data/spans";
import { mark } from "../state/state";
import { duration, plural } from "../ui/format";
import type { Actions } from "./actions";
import { waitColour } from "./palette";
import { set, setting } from "./settings";
import type { Waits } from "./waits";

interface Props {
  actions: Actions;
  isTable: boolean;
  table: () => void;
}

export function Controls({ actions, isTable, table }: Props) {
  const { layout, model } = actions.picture;
  const hidden = actions.picture.layouts.value.hidden || layout.hidden;
  return (
    <div class="controls tl-controls">
      <label>
        Tracks{" "}
        <input type="search" class="tl-rows" value={setting("rows")} placeholder="words" onInput={event => set("rows", event.currentTarget.value)} />
      </label>
      <label>
        <input type="checkbox" checked={setting("apart") === "1"} onChange={event => set("apart", event.currentTarget.checked ? "1" : "")} /> Layers apart
      </label>
      <span class="tl-buttons">
        <button type="button" title="key 0" onClick={() => actions.showAll()}>Whole run</button>
        <button type="button" title="key f" onClick={() => actions.focusSelection()}>Zoom to selection</button>
        <button type="button" title="key m" aria-pressed={mark.value !== null} onClick={() => actions.markSelection()}>Mark</button>
        <button type="button" title="key t" aria-pressed={isTable} onClick={table}>As a table</button>
      </span>
      {mark.value && <span class="tl-marked">{`marked: ${duration(mark.value[1] - mark.value[0])}`}</span>}
      {hidden > 0 && <span class="quiet">{`${plural(hidden, "thread")} left out by these words`}</span>}
      {model.empty > 0 && <span class="quiet">{`${plural(model.empty, "thread")} with neither spans nor waits ${model.empty === 1 ? "is" : "are"} not shown`}</span>}
    </div>
  );
}

export function Legend({ about, waits }: { about: SpanAbout; waits: Waits | null }) {
  const used = new Set(about.classes.map(of => of[2]));
  const states = [...new Set((waits?.usedStates() ?? []).map(waitColour))];
  return (
    <ul class="tl-legend" aria-label="what the colours and edges mean">
      {about.layers.map((layer, at) => used.has(at) && (
        <li key={layer}>
          <span class={`tl-key tl-layer-${layer}`} aria-hidden="true" /> {layer}
        </li>
      ))}
      {states.map(of => (
        <li key={of}>
          <span class={`tl-key tl-${of}`} aria-hidden="true" /> {WAIT_WORDS[of]}
        </li>
      ))}
      {waits?.hasSampled && (
        <li>
          <span class="tl-key tl-sampled" aria-hidden="true" /> a sample of waits, whose length is not known
        </li>
      )}
    </ul>
  );
}

const WAIT_WORDS: Record<string, string> = {
  "wait-preempted": "waits for a CPU",
  "wait-fault": "waits for memory",
  "wait-input": "waits for files, pipes, sockets",
  "wait-unknown": "waits for an unknown reason",
  "wait-other": "waits for other threads, or sleeps",
};
