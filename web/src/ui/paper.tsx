// What goes on paper, whichever page is open: the overview and the findings, in light colours.
//
// A browser does not wait when it prints, so what a file holds is read beforehand. What a server has
// is read when Ctrl+P is pressed, and the browser's own printing follows.

import { useEffect, useRef, useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import { FindingsContent, findingsOf } from "../pages/findings";
import { OverviewContent, overviewOf } from "../pages/overview";
import { page } from "../state/state";
import { sentence } from "./loading";
import { theme } from "./theme";

const PRINTED_BEHIND = new Set(["tables", "modules", "machine", "compare"]);
// Until then the page that is open has the processor for itself.
const READ_AFTER_MS = 300;

// Whether the page that is open follows on paper: pictures that move are for the screen.
export function isForScreen(): boolean {
  return !PRINTED_BEHIND.has(page.value);
}

interface Content {
  overview: Awaited<ReturnType<typeof overviewOf>>;
  findings: Awaited<ReturnType<typeof findingsOf>>;
}

async function contentOf(recording: Recording): Promise<Content> {
  const [overview, findings] = await Promise.all([overviewOf(recording), findingsOf(recording)]);
  return { overview, findings };
}

export function Paper({ recording }: { recording: Recording }) {
  const [isPrinting, setPrinting] = useState(false);
  const [content, setContent] = useState<Content | null>(null);
  const [problem, setProblem] = useState("");
  const asked = useRef<Promise<void> | null>(null);
  const read = () => (asked.current ??= contentOf(recording).then(setContent, error => setProblem(sentence(error))));
  useEffect(() => {
    if (recording.isLive) return;
    const timer = setTimeout(read, READ_AFTER_MS);
    return () => clearTimeout(timer);
  }, [recording]);
  useEffect(() => {
    let chosen = theme.peek();
    const before = () => {
      void read();
      chosen = theme.peek();
      theme.value = "light"; // canvases have their colours inside
      setPrinting(true);
    };
    const after = () => {
      setPrinting(false);
      theme.value = chosen;
    };
    addEventListener("beforeprint", before);
    addEventListener("afterprint", after);
    return () => {
      removeEventListener("beforeprint", before);
      removeEventListener("afterprint", after);
    };
  }, [recording]);
  useEffect(() => {
    const isThere = content !== null || problem !== "";
    const onKey = (event: KeyboardEvent) => {
      if (isThere || !(event.ctrlKey || event.metaKey) || event.key !== "p") return;
      event.preventDefault();
      void read().then(() => setTimeout(() => print()));
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [content, problem]);
  const [data, tracks, places] = content?.overview ?? [];
  return (
    <div class="paper" data-ready={content ? "" : undefined}>
      {isPrinting && !content && <p>{problem ? `The overview and the findings cannot be read: ${problem}` : "The overview and the findings are being read; print again in a moment."}</p>}
      {isPrinting && content && <OverviewContent recording={recording} data={data!} tracks={tracks!} places={places!} />}
      {isPrinting && content && <FindingsContent data={content.findings} />}
    </div>
  );
}
