// The same step of several recordings, each as a strip of the thread that makes the steps, aligned at
// the start of the step and on one scale.

import type { Spans } from "../data/spans";
import { firstAt } from "../data/statistics";
import type { Step, Tracks } from "../data/tracks";
import { type Bars, WindowSpans } from "../data/window_spans";
import { emptied, useCanvas } from "./canvas";
import { duration } from "./format";
import { Loaded, useLoaded } from "./loading";
import { colour } from "./theme";

const LANE = 18;
const MOST_LANES = 10;
const PALETTE = 8;
const LEAST_LABEL_PX = 40;
const MOST_PX = 20_000; // of a picture, as questions.py has it

export type StripSpans = Spans | WindowSpans;

interface Side {
  label: string;
  spans: StripSpans;
  tracks: Tracks;
}

interface Props {
  sides: Side[];
  step: number | null; // null: the middle one by duration
  onStep: (step: number) => void;
}

export function StepStrips({ sides, step, onStep }: Props) {
  const shown = sides.map(side => stepOf(side.tracks.steps, step));
  const longest = shown.reduce((most, one) => Math.max(most, one?.dur ?? 0), 1);
  const last = Math.max(...sides.map(side => side.tracks.steps.length - 1), 0);
  return (
    <>
      <label>
        Step{" "}
        <input type="number" min={0} max={last} value={shown[0]?.step ?? 0} onChange={event => onStep(Number(event.currentTarget.value))} />
      </label>
      {sides.map((side, at) => (
        <figure key={side.label} class="strip">
          <figcaption>{`${side.label}: ${shown[at] ? `step ${shown[at].step}, ${duration(shown[at].dur)}` : "has no such step"}`}</figcaption>
          {shown[at] && <Strip side={side} step={shown[at]} longest={longest} />}
        </figure>
      ))}
    </>
  );
}

// The step of this number, or the one whose duration is in the middle of all measured ones.
function stepOf(steps: Step[], number: number | null): Step | undefined {
  if (number !== null) return steps.find(step => step.step === number);
  const measured = steps.filter(step => !step.warmup).sort((a, b) => a.dur - b.dur);
  return measured[measured.length >> 1] ?? steps[0];
}

function Strip({ side, step, longest }: { side: Side; step: Step; longest: number }) {
  const state = useLoaded(async () => ({ bars: await barsOf(side, step), of: step }), [side.spans, step]);
  return <Loaded state={state}>{({ bars, of }) => <Drawn bars={bars} label={side.label} step={of} longest={longest} />}</Loaded>;
}

function Drawn({ bars: { count, bars }, label, step, longest }: { bars: Bars; label: string; step: Step; longest: number }) {
  const lanes = Math.min(MOST_LANES, 1 + bars.reduce((most, bar) => Math.max(most, bar.depth), 0));
  const canvas = useCanvas(of => drawStrip(of, bars, step, longest, lanes), [bars, step, longest]);
  const words = `${count} spans of ${label}, step ${step.step}; the timeline of that report has them one by one`;
  return <canvas ref={canvas} role="img" aria-label={words} style={{ height: `${lanes * LANE}px` }} />;
}

// The spans that start in the step, on the track of its process that has most of them.
function barsOf({ spans, tracks }: Side, step: Step): Promise<Bars> {
  const own = tracks.tracks.filter(track => track.process === step.process).map(({ track }) => track);
  const stretch = [step.start, step.start + step.dur] as const;
  if (spans instanceof WindowSpans) return spans.busiest(own, stretch, Math.min(MOST_PX, Math.round(screen.width * devicePixelRatio)), MOST_LANES);
  let best: [number, number] = [0, 0];
  for (const track of spans.about.tracks) {
    if (!own.includes(track)) continue;
    const [from, to] = spans.range(track);
    const range: [number, number] = [firstAt(spans.start, from, to, stretch[0]), firstAt(spans.start, from, to, stretch[1])];
    if (range[1] - range[0] > best[1] - best[0]) best = range;
  }
  const rows = Array.from({ length: best[1] - best[0] }, (_, i) => best[0] + i);
  const bars = rows.map(row => ({ depth: spans.depth[row]!, start: spans.start[row]!, dur: spans.dur[row]!, name: spans.name(row) }));
  return Promise.resolve({ count: rows.length, bars });
}

function drawStrip(canvas: HTMLCanvasElement, bars: Bars["bars"], step: Step, longest: number, lanes: number): void {
  const { context, width } = emptied(canvas, lanes * LANE);
  context.font = "11px system-ui, sans-serif";
  const text = colour("text");
  const colours = Array.from({ length: PALETTE }, (_, at) => colour(`part-${at}`));
  for (const { depth, start, dur, name } of bars) {
    if (depth >= lanes) continue;
    const x = ((start - step.start) / longest) * width;
    const px = Math.max((dur / longest) * width, 0.5);
    context.fillStyle = colours[placeOf(name)]!;
    context.globalAlpha = 0.6;
    context.fillRect(x, depth * LANE, px, LANE - 1);
    context.globalAlpha = 1;
    if (px >= LEAST_LABEL_PX) label(context, name, x, depth * LANE, px, text);
  }
}

// The same name has the same colour in every recording.
function placeOf(name: string): number {
  let hash = 0;
  for (let i = 0; i < name.length; i++) hash = (hash * 31 + name.charCodeAt(i)) | 0;
  return Math.abs(hash) % PALETTE;
}

function label(context: CanvasRenderingContext2D, words: string, x: number, y: number, px: number, fill: string): void {
  context.save();
  context.beginPath();
  context.rect(x, y, px, LANE);
  context.clip();
  context.fillStyle = fill;
  context.fillText(words, x + 3, y + LANE - 6);
  context.restore();
}
