// The same step of several recordings, each as a strip of the thread that makes the steps, aligned at
// the start of the step and on one scale.

import type { Spans } from "../data/spans";
import { firstAt } from "../data/statistics";
import type { Step, Tracks } from "../data/tracks";
import { emptied, useCanvas } from "./canvas";
import { duration } from "./format";
import { colour } from "./theme";

const LANE = 18;
const MOST_LANES = 10;
const PALETTE = 8;
const LEAST_LABEL_PX = 40;

interface Side {
  label: string;
  spans: Spans;
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
  const rows = rowsOf(side, step);
  const lanes = Math.min(MOST_LANES, 1 + rows.reduce((most, row) => Math.max(most, side.spans.depth[row]!), 0));
  const canvas = useCanvas(of => drawStrip(of, side.spans, rows, step, longest, lanes), [side, step, longest]);
  const label = `${rows.length} spans of ${side.label}, step ${step.step}; the timeline of that report has them one by one`;
  return <canvas ref={canvas} role="img" aria-label={label} style={{ height: `${lanes * LANE}px` }} />;
}

// The spans that start in the step, on the track of its process that has most of them.
function rowsOf({ spans, tracks }: Side, step: Step): number[] {
  let best: [number, number] = [0, 0];
  for (const track of spans.about.tracks) {
    if (tracks.track(track)?.process !== step.process) continue;
    const [from, to] = spans.range(track);
    const range: [number, number] = [firstAt(spans.start, from, to, step.start), firstAt(spans.start, from, to, step.start + step.dur)];
    if (range[1] - range[0] > best[1] - best[0]) best = range;
  }
  return Array.from({ length: best[1] - best[0] }, (_, i) => best[0] + i);
}

function drawStrip(canvas: HTMLCanvasElement, spans: Spans, rows: number[], step: Step, longest: number, lanes: number): void {
  const { context, width } = emptied(canvas, lanes * LANE);
  context.font = "11px system-ui, sans-serif";
  const text = colour("text");
  const colours = Array.from({ length: PALETTE }, (_, at) => colour(`part-${at}`));
  for (const row of rows) {
    const depth = spans.depth[row]!;
    if (depth >= lanes) continue;
    const x = ((spans.start[row]! - step.start) / longest) * width;
    const px = Math.max((spans.dur[row]! / longest) * width, 0.5);
    context.fillStyle = colours[placeOf(spans.name(row))]!;
    context.globalAlpha = 0.6;
    context.fillRect(x, depth * LANE, px, LANE - 1);
    context.globalAlpha = 1;
    if (px >= LEAST_LABEL_PX) label(context, spans.name(row), x, depth * LANE, px, text);
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
