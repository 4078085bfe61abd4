// Every span on the track where it ran.

import type { Recording } from "../data/recording";
import { spansOf } from "../data/spans";
import { tracksOf } from "../data/tracks";
import { Loaded, useLoaded } from "../ui/loading";
import { TimelineView } from "../timeline/timeline_view";

export function Timeline({ recording }: { recording: Recording }) {
  const state = useLoaded(() => Promise.all([spansOf(recording), tracksOf(recording)]), [recording]);
  return (
    <Loaded state={state}>
      {([spans, tracks]) =>
        spans.count || hasMoments(recording) ? <TimelineView recording={recording} spans={spans} tracks={tracks} /> : <p>No spans were recorded, so there is no timeline. The tables have what there is.</p>
      }
    </Loaded>
  );
}

// Whether there are samples or counters, which a timeline shows without spans too.
function hasMoments(recording: Recording): boolean {
  return ["samples", "counters"].some(block => (recording.head.blocks[block]?.rows ?? 0) > 0);
}
