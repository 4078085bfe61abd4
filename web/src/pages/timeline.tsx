// Every span on the track where it ran.

import type { Recording } from "../data/recording";
import { storeOf } from "../data/store";
import { tracksOf } from "../data/tracks";
import { TimelineView } from "../timeline/timeline_view";
import { Loaded, useLoaded } from "../ui/loading";

export function Timeline({ recording }: { recording: Recording }) {
  const state = useLoaded(() => contentOf(recording), [recording]);
  return (
    <Loaded state={state}>
      {({ spans, tracks, isEmpty }) =>
        isEmpty ? <p>Neither spans nor samples were recorded, so there is no timeline. The tables have what there is.</p> : <TimelineView recording={recording} spans={spans} tracks={tracks} />
      }
    </Loaded>
  );
}

async function contentOf(recording: Recording) {
  const [spans, tracks] = await Promise.all([storeOf(recording), tracksOf(recording)]);
  return { spans, tracks, isEmpty: !spans.count && !(await hasMoments(recording)) };
}

// Whether there are waits or counters, which a timeline shows without spans too.
async function hasMoments(recording: Recording): Promise<boolean> {
  const asked = ["samples", "counters"].filter(block => recording.has(block)).map(block => recording.columns(block));
  return (await Promise.all(asked)).some(columns => columns["at"].length > 0);
}
