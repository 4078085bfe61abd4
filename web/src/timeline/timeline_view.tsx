// The picture of the timeline.

import type { Recording } from "../data/recording";
import type { Spans } from "../data/spans";
import type { Tracks } from "../data/tracks";
import { plural } from "../ui/format";

export function TimelineView({ spans }: { recording: Recording; spans: Spans; tracks: Tracks }) {
  return <p>{plural(spans.count, "span")}</p>;
}
