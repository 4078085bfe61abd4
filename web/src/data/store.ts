// Who answers questions about the spans of a recording: the page itself, or the server that has them.

import type { Recording } from "./recording";
import type { SpanStore } from "./span_store";
import { spansOf } from "./spans";
import { WholeSpans } from "./whole_spans";
import { WindowSpans } from "./window_spans";

const known = new WeakMap<Recording, Promise<SpanStore>>();

export function storeOf(recording: Recording): Promise<SpanStore> {
  let asked = known.get(recording);
  if (!asked) {
    asked = recording.answers ? WindowSpans.opened(recording.answers) : spansOf(recording).then(spans => new WholeSpans(spans));
    asked.catch(() => known.delete(recording)); // the next one who asks may have more luck
    known.set(recording, asked);
  }
  return asked;
}
