// Keys that work on every page. Pages have keys of their own, which `KEYS` lists too.

export const KEYS: readonly (readonly [string, string])[] = [
  ["1 to 9", "go to a page"],
  ["/", "search"],
  ["Esc", "take away the last filter, or close this list"],
  ["?", "this list"],
  ["W, S", "timeline: zoom in, out"],
  ["A, D or \u2190, \u2192", "timeline: earlier, later"],
  ["\u2191, \u2193", "timeline: the row above, below"],
  ["Tab", "timeline: the next span of the row"],
  ["Alt \u2191, \u2193", "timeline: move a track, where its label has the focus"],
  ["space and drag", "timeline: move the picture"],
  ["f", "timeline: zoom to what is selected"],
  ["m", "timeline: mark what is selected"],
  ["0", "timeline: the whole run"],
  ["Enter", "choose what has the focus"],
  ["n, N", "timeline: the next, the previous hit of the search"],
  ["\u2190 \u2191 \u2192 \u2193, Home", "flame graph: from frame to frame, all"],
  ["Enter", "flame graph: zoom to the chosen frame; Esc goes back"],
  ["s", "flame graph: callers and callees of the chosen frame"],
  ["t", "show the content of a picture as a table"],
];

export type Action = "help" | "escape" | { page: string };

export function actionOf(event: KeyboardEvent, pages: readonly string[]): Action | null {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return null;
  if (event.key === "Escape") return "escape";
  if (isTyping(event)) return null;
  if (event.key === "?") return "help";
  const page = /^[1-9]$/.test(event.key) ? pages[Number(event.key) - 1] : undefined;
  return page === undefined ? null : { page };
}

// Whether the key goes into a field.
export function isTyping(event: KeyboardEvent): boolean {
  const on = event.target;
  return on instanceof HTMLElement && (on.isContentEditable || /^(INPUT|SELECT|TEXTAREA)$/.test(on.tagName));
}
