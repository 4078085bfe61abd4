// Distributions of durations over each other, in the same bins, with their quantiles as a table.

import { placeOfPart } from "../data/statistics";
import { emptied, useCanvas } from "./canvas";
import { duration } from "./format";
import { colour } from "./theme";

const BINS = 60;
const HEIGHT = 160;
const QUANTILES: readonly [string, number][] = [
  ["p5", 0.05],
  ["p25", 0.25],
  ["p50", 0.5],
  ["p75", 0.75],
  ["p95", 0.95],
  ["p99", 0.99],
];

export interface Series {
  label: string;
  values: number[]; // ns
}

interface Binned {
  from: number;
  width: number;
  shares: number[][]; // by series, then bin: which part of its values lies there
}

export function Histograms({ series }: { series: Series[] }) {
  const binned = binsOf(series);
  const canvas = useCanvas(of => drawBins(of, binned), [series]);
  return (
    <>
      <canvas ref={canvas} class="histograms" role="img" aria-label="how often each step time came; the table below has the quantiles" style={{ height: `${HEIGHT}px` }} />
      <p class="quiet axis">
        <span>{duration(binned.from)}</span>
        <span>{duration(binned.from + BINS * binned.width)}</span>
      </p>
      <table class="top">
        <thead>
          <tr>
            <th scope="col">step times</th>
            {QUANTILES.map(([name]) => (
              <th scope="col" class="number" key={name}>{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {series.map((one, at) => (
            <tr key={one.label}>
              <th scope="row">
                <span class={`key part-${at}`} aria-hidden="true" />
                {one.label}
              </th>
              {QUANTILES.map(([name, part]) => (
                <td class="number" key={name}>{duration(quantile(one.values, part))}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

// The smallest value that this part of all values do not exceed.
function quantile(values: number[], part: number): number {
  const sorted = Float64Array.from(values).sort();
  return sorted[placeOfPart(part, sorted.length)] ?? 0;
}

// From the shortest to the 99th percentile of all, so that one slow step does not flatten the rest.
function binsOf(series: Series[]): Binned {
  const all = series.flatMap(one => one.values);
  const from = all.reduce((least, value) => Math.min(least, value), Infinity);
  const to = Math.max(...series.map(one => quantile(one.values, 0.99)));
  const width = Math.max((to - from) / BINS, 1);
  const shares = series.map(one => {
    const counts: number[] = new Array(BINS).fill(0);
    for (const value of one.values) counts[Math.min(BINS - 1, Math.floor((value - from) / width))]!++;
    return counts.map(count => count / one.values.length);
  });
  return { from, width, shares };
}

function drawBins(canvas: HTMLCanvasElement, { shares }: Binned): void {
  const { context, width } = emptied(canvas, HEIGHT);
  const highest = Math.max(...shares.flat(), 1e-9);
  const bin = width / BINS;
  shares.forEach((of, at) => {
    context.fillStyle = colour(`part-${at}`);
    context.strokeStyle = context.fillStyle;
    const height = (share: number) => (share / highest) * (HEIGHT - 6);
    context.globalAlpha = 0.45;
    of.forEach((share, i) => context.fillRect(i * bin, HEIGHT - height(share), bin, height(share)));
    context.globalAlpha = 1;
    context.lineWidth = 2;
    context.setLineDash(at ? [] : [5, 3]); // told apart without colour
    context.beginPath();
    of.forEach((share, i) => {
      context.lineTo(i * bin, HEIGHT - height(share));
      context.lineTo((i + 1) * bin, HEIGHT - height(share));
    });
    context.stroke();
  });
}
