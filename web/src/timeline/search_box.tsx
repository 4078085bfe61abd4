// The search over names, its hits counted and listed.

import type { RefObject } from "preact";
import { name } from "../state/state";
import { count, plural } from "../ui/format";
import type { Actions } from "./actions";
import type { Found } from "./search";
import { set, setting } from "./settings";

const MOST_NAMES = 200;

interface Props {
  actions: Actions;
  found: Found | null;
  field: RefObject<HTMLInputElement | null>;
}

export function SearchBox({ actions, found, field }: Props) {
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter") void actions.nextHit(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") {
      set("find", "");
      field.current?.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="tl-search" role="search">
      <label>
        Search{" "}
        <input
          ref={field}
          data-search
          type="search"
          value={setting("find")}
          placeholder="words or /regex/"
          aria-invalid={Boolean(found?.error)}
          aria-describedby="tl-hits"
          onInput={event => set("find", event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
      </label>
      <button type="button" disabled={!found?.count} onClick={() => void actions.nextHit(-1)} title="key N">Previous</button>
      <button type="button" disabled={!found?.count} onClick={() => void actions.nextHit(1)} title="key n">Next</button>
      <span id="tl-hits" role="status">
        {found && (found.error ? `this cannot be searched for: ${found.error}` : `${plural(found.count, "hit")} in ${plural(found.names.length, "name")}`)}
      </span>
      {found && found.count > 0 && <Hits found={found} />}
    </div>
  );
}

function Hits({ found }: { found: Found }) {
  return (
    <details class="tl-hits">
      <summary>Hits by name</summary>
      <ul>
        {found.names.slice(0, MOST_NAMES).map(one => (
          <li key={one.name}>
            <button type="button" class="cell" onClick={() => (name.value = one.name)}>{one.name || "(no name)"}</button> {count(one.count)}
          </li>
        ))}
        {found.names.length > MOST_NAMES && <li class="quiet">{plural(found.names.length - MOST_NAMES, "more name")}</li>}
      </ul>
    </details>
  );
}
