// Keys of the timeline. Letters work wherever no text is written; arrows, Tab and Enter only where
// the picture has the focus, so that tables and buttons keep theirs.

import { isTyping } from "../ui/keys";
import type { Actions } from "./actions";

export interface KeyHands {
  isOnPicture: (event: KeyboardEvent) => boolean;
  search: () => void;
  table: () => void;
  announce: () => void; // says what has the focus
}

const ZOOM = 0.6;
const PAN = 0.2;

// Whether a key meant something here.
export function onKey(actions: Actions, event: KeyboardEvent, hands: KeyHands): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return false;
  if (event.key === "Escape") return !isTyping(event) && actions.escape();
  if (isTyping(event)) return false;
  if (anywhere(actions, event.key, hands)) return true;
  return hands.isOnPicture(event) && onPicture(actions, event, hands);
}

function anywhere(actions: Actions, key: string, hands: KeyHands): boolean {
  const { view } = actions.picture;
  const middle = (view.aim[0] + view.aim[1]) / 2;
  const moves: Record<string, () => void> = {
    w: () => view.zoom(ZOOM, middle, true),
    s: () => view.zoom(1 / ZOOM, middle, true),
    a: () => view.pan(-PAN, true),
    d: () => view.pan(PAN, true),
    f: () => actions.focusSelection(),
    m: () => actions.markSelection(),
    n: () => void actions.nextHit(1),
    N: () => void actions.nextHit(-1),
    t: hands.table,
    "0": () => actions.showAll(),
    "/": hands.search,
  };
  const move = moves[key] ?? (key === "N" ? undefined : moves[key.toLowerCase()]);
  move?.();
  return move !== undefined;
}

function onPicture(actions: Actions, event: KeyboardEvent, hands: KeyHands): boolean {
  const { picture } = actions;
  const focus = picture.focus.value;
  const moves: Record<string, () => boolean | void> = {
    ArrowLeft: () => picture.view.pan(-PAN, true),
    ArrowRight: () => picture.view.pan(PAN, true),
    ArrowUp: () => actions.moveRow(-1),
    ArrowDown: () => actions.moveRow(1),
    Tab: () => focus !== null && actions.moveSpan(event.shiftKey ? -1 : 1, hands.announce),
    Enter: () => enter(actions),
    " ": () => {},
  };
  const move = moves[event.key];
  if (!move || move() === false) return false;
  if (event.key !== " " && event.key !== "Tab") hands.announce();
  return true;
}

function enter(actions: Actions): boolean {
  const focus = actions.picture.focus.value;
  if (!focus || focus.row < 0 || actions.focusedRow()?.waits) return false;
  void chooseFocused(actions);
  return true;
}

async function chooseFocused(actions: Actions): Promise<void> {
  await actions.settled();
  const focus = actions.picture.focus.value;
  if (focus && focus.row >= 0) await actions.choose(focus.row);
}
