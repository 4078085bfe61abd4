// The timeline: the picture with its labels and ruler, and below it what is selected.

import { effect } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import type { SpanStore } from "../data/span_store";
import { stretchOfSteps } from "../data/steps";
import type { Tracks } from "../data/tracks";
import { chosen, mark, moduleName, name, type Stretch, step, time, tracks as selectedTracks, view } from "../state/state";
import { theme } from "../ui/theme";
import { Actions } from "./actions";
import { Controls, Legend } from "./controls";
import { describe } from "./describe";
import { filterOf } from "./filter";
import { onKey } from "./keyboard";
import { Labels } from "./labels";
import { type Later, readLater, stepsByProcess, wholeOf } from "./later";
import { type Hands, type Hover, onDoubleClick, onDown, onRulerDown, onWheel, rulerText } from "./mouse";
import { Picture } from "./picture";
import { RowModel } from "./rows";
import { rulerHeight } from "./ruler";
import { SearchBox } from "./search_box";
import { searched } from "./search";
import { SelectionPanel } from "./selection_panel";
import { arrangement, setting } from "./settings";
import { SpanDetails } from "./span_details";
import { padded } from "./view";
import { VisibleTable } from "./visible_table";
import "./timeline.css";

interface Props {
  recording: Recording;
  spans: SpanStore;
  tracks: Tracks;
}

// What was selected when the timeline was last left: what is selected since then is shown.
let left: { time: Stretch | null; step: string } | null = null;

export function TimelineView(props: Props) {
  const [later, setLater] = useState<Later | null>(null);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    readLater(props.recording, props.spans, props.tracks).then(setLater, (error: unknown) => setProblem(String(error)));
  }, [props.recording]);
  return (
    <>
      {problem && <p role="alert">Waits, counters and links cannot be read: {problem}</p>}
      <Shown {...props} later={later} />
    </>
  );
}

function Shown({ recording, spans, tracks, later }: Props & { later: Later | null }) {
  const scroller = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const ruler = useRef<HTMLCanvasElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const [hover, setHover] = useState<Hover | null>(null);
  const [isTable, setTable] = useState(false);
  const [said, say] = useState("");
  const actions = useMemo(() => new Actions(pictureOf(spans, tracks, recording.head.run.wall_ns, top => scroller.current && (scroller.current.scrollTop = top))), [spans]);
  const { picture } = actions;
  const words = setting("find");
  const found = useMemo(() => searched(spans, words), [spans, words]);

  useEffect(() => {
    picture.attach(canvas.current!, over.current!, ruler.current!);
    showWhatIsNew(picture);
    const shown = over.current!; // the reference is empty before the observer ends
    const observer = new ResizeObserver(() => picture.resize(shown.clientWidth, shown.clientHeight));
    observer.observe(shown);
    const stop = [followArrangement(picture, inner.current!), followState(picture), followColours(picture)];
    return () => {
      left = { time: time.value, step: step.value };
      observer.disconnect();
      stop.forEach(one => one());
      picture.detach();
    };
  }, [picture]);
  useEffect(() => {
    if (!later) return;
    picture.flags = later.flags;
    const model = new RowModel(spans, tracks, later.waits, later.series);
    picture.setLayout(model.layout(arrangement()), model);
    inner.current!.style.height = `${picture.layout.height + picture.layout.pinnedHeight}px`;
  }, [picture, later]);
  useEffect(() => {
    const filter = filterOf(spans, tracks, { name: name.value, moduleName: moduleName.value, step: step.value }, null);
    picture.emphasise(filter, found && !found.error ? found.classes : null);
  }, [picture, found, name.value, moduleName.value, step.value]);

  const hands = useMemo<Hands>(() => ({ isSpaceHeld: false, hover: setHover, describe: () => [] }), []);
  hands.describe = (x, y) => describe(picture, later, picture.pointed(x, y));
  useKeys(actions, hands, { say, search: () => field.current?.focus(), table: () => setTable(now => !now), picture: over, later });
  useWheel(picture, over);
  useAnnounced(actions, later, say);

  const lastHover = useRef<MouseEvent | null>(null);
  const onHover = (event: MouseEvent) => {
    lastHover.current = event;
    if (event.buttons) return;
    const box = over.current!.getBoundingClientRect();
    const lines = hands.describe(event.clientX - box.left, event.clientY - box.top);
    setHover(lines.length ? { x: event.clientX, y: event.clientY, lines } : null);
  };
  // What is under the mouse may have to come first.
  useEffect(() => {
    if (lastHover.current) onHover(lastHover.current);
  }, [spans.answers.value]);
  const onLeave = () => {
    lastHover.current = null;
    setHover(null);
  };
  const onRulerHover = (event: MouseEvent) => {
    const box = ruler.current!.getBoundingClientRect();
    const lines = rulerText(picture, event.clientX - box.left, event.clientY - box.top);
    setHover(lines.length ? { x: event.clientX, y: event.clientY, lines } : null);
  };
  const row = chosen.value !== null && chosen.value < spans.count ? chosen.value : null;
  const problem = spans.problem.value;
  return (
    <div class="timeline" data-ready={later ? "" : undefined}>
      <div class="tl-bar">
        <SearchBox actions={actions} found={found} field={field} />
        <Controls actions={actions} isTable={isTable} table={() => setTable(now => !now)} />
      </div>
      <Legend about={spans.about} waits={later?.waits ?? null} />
      <div class="tl-frame">
        <div class="tl-top">
          <Corner picture={picture} />
          <canvas
            ref={ruler}
            class="tl-ruler"
            aria-hidden="true"
            style={{ height: `${rulerHeight(picture.hasSteps, later?.flags ?? [])}px` }}
            onPointerDown={event => onRulerDown(picture, event.currentTarget, event)}
            onMouseMove={onRulerHover}
            onMouseLeave={() => setHover(null)}
          />
        </div>
        <div ref={scroller} class="tl-scroller" onScroll={event => { picture.scroll.value = event.currentTarget.scrollTop; picture.draw(); }}>
          <div ref={inner} class="tl-inner">
            <div class="tl-stage">
              <Labels picture={picture} />
              <div class="tl-canvases">
                <canvas ref={canvas} aria-hidden="true" />
                <canvas
                  ref={over}
                  class="tl-over"
                  tabIndex={0}
                  role="application"
                  aria-label="timeline: up and down choose a row, Tab goes through its spans, Enter chooses one, t shows a table"
                  onPointerDown={event => onDown(actions, event.currentTarget, event, hands)}
                  onDblClick={event => void onDoubleClick(picture, event.currentTarget, event)}
                  onMouseMove={onHover}
                  onMouseLeave={onLeave}
                />
              </div>
            </div>
          </div>
        </div>
      </div>
      {problem && <p role="alert">The timeline cannot be read: {problem}</p>}
      <p class="tl-said" role="status" aria-live="polite">{said}</p>
      {hover && <Tip hover={hover} />}
      <div class="tl-panel">
        {row !== null && <SpanDetails actions={actions} spans={spans} tracks={tracks} later={later} row={row} />}
        {isTable ? <VisibleTable actions={actions} spans={spans} tracks={tracks} whole={picture.view.whole} /> : <SelectionPanel spans={spans} tracks={tracks} waits={later?.waits ?? null} whole={picture.view.limits} isPart={recording.head.notes.length > 0} />}
      </div>
    </div>
  );
}

// Whose steps the ruler shows, where several processes have steps.
function Corner({ picture }: { picture: Picture }) {
  const process = picture.stepProcess.value;
  const [first] = picture.stepsByProcess.get(process) ?? [];
  const noun = first?.rule === "forward" ? "requests" : "steps";
  const words = picture.stepsByProcess.size > 1 ? `${noun} of ${picture.tracks.stepProcesses.get(process) ?? ""}` : noun;
  return <div class="tl-corner">{first && <span class="tl-step-label" title={words}>{words}</span>}</div>;
}

function pictureOf(spans: SpanStore, tracks: Tracks, wall_ns: number, scrollTo: (top: number) => void): Picture {
  const whole = wholeOf(spans, tracks, wall_ns);
  const limits = [Math.min(0, whole[0]), Math.max(wall_ns, whole[1])] as const;
  const model = new RowModel(spans, tracks, null, []);
  const picture = new Picture(spans, tracks, model, model.layout(arrangement()), { whole, limits }, scrollTo);
  picture.stepsByProcess = stepsByProcess(tracks);
  // For measurements of frames.
  (window as unknown as { layerscopeTimeline: Picture }).layerscopeTimeline = picture;
  return picture;
}

// A selection that was made on another page is shown, where the address does not say what to show.
function showWhatIsNew(picture: Picture): void {
  const isNew = left && (left.time !== time.value || left.step !== step.value);
  if (view.value && !isNew) return;
  const stretch = time.value ?? stretchOfSteps(picture.tracks.steps, step.value);
  if (stretch) picture.view.show(padded(stretch, 0.15));
  else if (chosen.value !== null && chosen.value < picture.spans.count && !view.value) void picture.spans.span(chosen.value).then(span => picture.show(span));
}

function followArrangement(picture: Picture, inner: HTMLElement): () => void {
  return effect(() => {
    const wanted = arrangement();
    const layout = picture.model.layout(wanted);
    inner.style.height = `${layout.height + layout.pinnedHeight}px`;
    picture.setLayout(layout, picture.model);
  });
}

// What lies over the spans is drawn again when the selection changes; the address may move the view.
function followState(picture: Picture): () => void {
  const stopDrawing = effect(() => {
    void [time.value, selectedTracks.value, mark.value, chosen.value, step.value, picture.focus.value];
    picture.draw(false);
  });
  const stopViewing = effect(() => picture.view.follow(view.value));
  let before = step.peek();
  const stopStep = effect(() => {
    const of = step.value === before ? null : stretchOfSteps(picture.tracks.steps, step.value);
    before = step.value;
    if (of && !view.peek()) picture.view.show(padded(of, 0.15), true);
  });
  return () => [stopDrawing, stopViewing, stopStep].forEach(stop => stop());
}

function followColours(picture: Picture): () => void {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const recolour = () => picture.recolour();
  system.addEventListener("change", recolour);
  const stop = effect(() => {
    void theme.value;
    recolour();
  });
  return () => {
    stop();
    system.removeEventListener("change", recolour);
  };
}

// The wheel's listener may stop the page from scrolling only if it says so when it is added.
function useWheel(picture: Picture, over: { current: HTMLCanvasElement | null }): void {
  useEffect(() => {
    const canvas = over.current!;
    const turn = (event: WheelEvent) => onWheel(picture, canvas, event);
    canvas.addEventListener("wheel", turn, { passive: false });
    return () => canvas.removeEventListener("wheel", turn);
  }, [picture]);
}

interface KeyUse {
  say: (words: string) => void;
  search: () => void;
  table: () => void;
  picture: { current: HTMLCanvasElement | null };
  later: Later | null;
}

function useKeys(actions: Actions, hands: Hands, use: KeyUse): void {
  useEffect(() => {
    const isOnPicture = (event: KeyboardEvent) => event.target === use.picture.current || (event.target === document.body && event.key !== "Tab");
    const announce = () => {
      const row = actions.focusedRow();
      const item = actions.picture.focus.value?.row ?? -1;
      if (!row) return;
      const words = item < 0 ? `${row.title || row.label}${row.kind === "lane" ? `, row ${row.key.split(" ")[1]}` : ""}` : `${describe(actions.picture, use.later, { row, item, at: 0 }).join(", ")}, ${actions.placeInRow(row, item)}`;
      use.say(words);
    };
    const down = (event: KeyboardEvent) => {
      if (event.key === " " && event.target === use.picture.current) hands.isSpaceHeld = true;
      if (!onKey(actions, event, { isOnPicture, search: use.search, table: use.table, announce })) return;
      event.preventDefault();
      event.stopPropagation();
    };
    const up = (event: KeyboardEvent) => {
      if (event.key === " ") hands.isSpaceHeld = false;
    };
    // Before the keys of all pages, of which Escape is one.
    addEventListener("keydown", down, true);
    addEventListener("keyup", up, true);
    return () => {
      removeEventListener("keydown", down, true);
      removeEventListener("keyup", up, true);
    };
  }, [actions, use.later]);
}

// The choice is said.
function useAnnounced(actions: Actions, later: Later | null, say: (words: string) => void): void {
  const { picture } = actions;
  useEffect(() => {
    const row = chosen.value;
    if (row === null || row >= picture.spans.count) return;
    void picture.spans.span(row).then(span => {
      if (chosen.peek() !== row) return;
      const at = picture.placeOfSpan(span);
      say(`chosen: ${describe(picture, later, { row: picture.layout.rows[Math.max(at, 0)], item: row, at: 0 }).join(", ")}`);
    });
  }, [chosen.value]);
}

function Tip({ hover }: { hover: Hover }) {
  const isRight = hover.x > innerWidth / 2;
  const style = { [isRight ? "right" : "left"]: `${isRight ? innerWidth - hover.x + 12 : hover.x + 12}px`, top: `${Math.min(hover.y + 14, innerHeight - 24 * hover.lines.length - 20)}px` };
  return (
    <div class="tl-tip" role="tooltip" style={style}>
      {hover.lines.map((line, at) => (
        <div key={at}>{line}</div>
      ))}
    </div>
  );
}
