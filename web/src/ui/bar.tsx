// A whole as a bar of its parts, with the figures below it.

import { duration, percent } from "./format";

export interface Part {
  label: string;
  value: number; // ns, or what `printed` prints
  choose?: () => void;
}

// Below this share a part has no place of its own in the bar.
const LEAST = 0.005;

function withRest(parts: Part[], whole: number): Part[] {
  const shown = parts.filter(part => part.value / whole >= LEAST);
  const rest = whole - shown.reduce((sum, part) => sum + part.value, 0);
  return rest / whole >= LEAST / 10 ? [...shown, { label: "the rest", value: rest }] : shown;
}

interface Props {
  label: string;
  parts: Part[];
  printed?: (value: number) => string;
}

export function Bar({ label, parts, printed = duration }: Props) {
  const whole = parts.reduce((sum, part) => sum + part.value, 0);
  if (!whole) return null;
  const shown = withRest(parts, whole);
  return (
    <figure class="bar" aria-label={label}>
      <div class="bar-parts" aria-hidden="true">
        {shown.map((part, at) => (
          <span key={part.label} class={`part part-${at % 8}`} style={{ width: `${(100 * part.value) / whole}%` }} title={`${part.label}: ${printed(part.value)}`} />
        ))}
      </div>
      <figcaption>
        <ul>
          {shown.map((part, at) => (
            <li key={part.label}>
              <span class={`key part-${at % 8}`} aria-hidden="true" />
              {`${part.label} ${printed(part.value)} `}
              <small>{percent(part.value / whole)}</small>
            </li>
          ))}
        </ul>
      </figcaption>
    </figure>
  );
}
