// Pages whose figures were made of the whole run say so while filters are set.

import { chips, page } from "../state/state";

const OF_WHOLE_RUN = new Set(["overview", "tables", "modules"]);

export function WholeRunNote() {
  if (!OF_WHOLE_RUN.has(page.value) || !chips.value.length) return null;
  return (
    <p class="notice" role="note">
      These figures are of the whole run; the filters above do not apply to them.
    </p>
  );
}
