// The time of every step over the run, on a canvas: warm-up pale, outliers marked, a click leads there.

import { useState } from "preact/hooks";
import type { Step } from "../data/tracks";
import { emptied, useCanvas } from "./canvas";
import { duration } from "./format";
import { colour } from "./theme";

const HEIGHT = 120;
// As the summary has it: twice the median is an outlier.
const OUTLIER = 2;

interface Props {
  steps: Step[];
  noun: string; // what a step is called
  median: number;
  onStep: (step: Step) => void;
}

export function StepChart({ steps, noun, median, onStep }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const [isTable, setTable] = useState(false);
  const canvas = useCanvas(of => drawSteps(of, steps, median, at), [steps, median, at, isTable]);
  const place = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const found = Math.floor(((event.clientX - box.left) / box.width) * steps.length);
    return Math.min(Math.max(found, 0), steps.length - 1);
  };
  const onKey = (event: KeyboardEvent) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (move) setAt(now => Math.min(Math.max((now ?? -1) + move, 0), steps.length - 1));
    else if (event.key === "Enter" && at !== null) onStep(steps[at]!);
    else if (event.key === "t") setTable(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  if (isTable) return <StepTable steps={steps} onStep={onStep} close={() => setTable(false)} />;
  return (
    <div class="chart">
      <canvas
        ref={canvas}
        tabIndex={0}
        role="img"
        aria-label={`times of ${steps.length} steps; the arrow keys go through them, Enter shows one in the timeline, t shows a table`}
        style={{ height: `${HEIGHT}px` }}
        onMouseMove={event => setAt(place(event))}
        onMouseLeave={() => setAt(null)}
        onClick={event => onStep(steps[place(event)]!)}
        onKeyDown={onKey}
      />
      <p class="quiet" role="status">
        {at === null ? `Each bar is a ${noun}; a click shows it in the timeline.` : `${noun} ${steps[at]!.step}: ${duration(steps[at]!.dur)}${steps[at]!.warmup ? ", warm-up" : ""}`}
      </p>
    </div>
  );
}

function StepTable({ steps, onStep, close }: { steps: Step[]; onStep: (step: Step) => void; close: () => void }) {
  return (
    <div class="table" style={{ height: "240px" }} tabIndex={0} role="region" aria-label="step times">
      <button type="button" onClick={close}>As a picture</button>
      <table>
        <thead>
          <tr>
            <th scope="col" class="number">step</th>
            <th scope="col" class="number">time</th>
          </tr>
        </thead>
        <tbody>
          {steps.slice(0, 2000).map(step => (
            <tr key={`${step.process} ${step.step}`}>
              <td class="number">
                <button type="button" class="cell" onClick={() => onStep(step)}>{step.step}</button>
              </td>
              <td class="number">{duration(step.dur)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function drawSteps(canvas: HTMLCanvasElement, steps: Step[], median: number, at: number | null): void {
  const { context, width } = emptied(canvas, HEIGHT);
  const highest = steps.reduce((most, step) => (step.warmup ? most : Math.max(most, step.dur)), median) * 1.1;
  const each = width / Math.max(steps.length, 1);
  const [bar, warm, slow, line] = ["bar", "warm", "slow", "line"].map(colour) as [string, string, string, string];
  steps.forEach((step, i) => {
    const height = Math.max(1, Math.min(1, step.dur / highest) * (HEIGHT - 4));
    context.fillStyle = step.warmup ? warm : step.dur > OUTLIER * median ? slow : bar;
    context.globalAlpha = at === null || at === i ? 1 : 0.55;
    context.fillRect(i * each, HEIGHT - height, Math.max(each - (each > 3 ? 1 : 0), 0.5), height);
  });
  context.globalAlpha = 1;
  context.strokeStyle = line;
  context.setLineDash([4, 4]);
  const y = HEIGHT - (median / highest) * (HEIGHT - 4);
  context.beginPath();
  context.moveTo(0, y);
  context.lineTo(width, y);
  context.stroke();
}
