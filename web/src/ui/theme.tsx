// Light or dark: as the system asks for, until somebody chooses.

import { effect, signal } from "@preact/signals";

const ORDER = ["system", "light", "dark"] as const;
type Theme = (typeof ORDER)[number];

export const theme = signal<Theme>("system");

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme.value;
});

// The colour that the style sheet gives a name, for what is drawn on a canvas.
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function ThemeButton() {
  const next = ORDER[(ORDER.indexOf(theme.value) + 1) % ORDER.length]!;
  return (
    <button type="button" onClick={() => (theme.value = next)} title={`now ${theme.value}`}>
      Colours: {theme.value}
    </button>
  );
}
