// The column beside the picture: what each row is, opened and closed, pinned and moved there. Only the
// rows that can be seen are in the document.

import { useRef } from "preact/hooks";
import type { Picture } from "./picture";
import { movedPlace, placeBeside, type Row } from "./rows";
import { arrangement, move, toggle } from "./settings";

const DRAG_PX = 4;

export function Labels({ picture }: { picture: Picture }) {
  const { rows, pinnedCount, pinnedHeight } = picture.layouts.value;
  void picture.scroll.value;
  void picture.sizes.value;
  const focus = picture.focus.value;
  const shown = picture.visible().map(at => (
    <Label key={`${rows[at].key} ${rows[at].isPinned}`} picture={picture} row={rows[at]} top={picture.topOf(at)} isPinned={at < pinnedCount} hasFocus={focus?.key === rows[at].key} />
  ));
  return (
    <div class="tl-labels" role="group" aria-label="tracks">
      {shown.slice(pinnedCount)}
      {pinnedCount > 0 && <div class="tl-pinned" style={{ height: `${pinnedHeight}px` }}>{shown.slice(0, pinnedCount)}</div>}
    </div>
  );
}

interface Props {
  picture: Picture;
  row: Row;
  top: number;
  isPinned: boolean;
  hasFocus: boolean;
}

function Label({ picture, row, top, hasFocus }: Props) {
  const style = { top: `${top}px`, height: `${row.height}px` };
  const className = `tl-label tl-${row.kind}${hasFocus ? " tl-focus" : ""}`;
  if (row.kind === "lane" || row.kind === "waits" || row.kind === "counter") {
    return <div class={className} style={style} title={row.title}>{row.label}</div>;
  }
  return (
    <div class={className} style={style} title={row.title} data-key={row.key}>
      <Head picture={picture} row={row} />
      {row.kind === "thread" && (
        <button type="button" class="tl-pin" aria-pressed={row.isPinned} aria-label={`pin ${row.label}`} title="keep at the top" onClick={() => toggle("pinned", row.key)}>
          <span aria-hidden="true">{row.isPinned ? "\u25c6" : "\u25c7"}</span>
        </button>
      )}
    </div>
  );
}

// Opens and closes; Alt with an arrow, or the mouse, moves it among its neighbours.
function Head({ picture, row }: { picture: Picture; row: Row }) {
  const wasDragged = useRef(false);
  const canMove = row.kind !== "counters";
  const onKeyDown = (event: KeyboardEvent) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key] as -1 | 1 | undefined;
    if (!event.altKey || !by || !canMove) return;
    event.preventDefault();
    move(row.key, movedPlace(picture.model, arrangement(), row.key, by));
  };
  const onClick = () => {
    if (wasDragged.current) wasDragged.current = false;
    else if (row.isOpen !== null) toggle("toggled", row.key);
  };
  return (
    <button
      type="button"
      class="fold tl-head-button"
      {...(row.isOpen === null ? {} : { "aria-expanded": row.isOpen })}
      aria-keyshortcuts={canMove ? "Alt+ArrowUp Alt+ArrowDown" : undefined}
      onClick={onClick}
      onKeyDown={onKeyDown}
      onPointerDown={event => canMove && drag(picture, row, event, () => (wasDragged.current = true))}
    >
      <span class="tl-arrow" aria-hidden="true">{row.isOpen === null ? "" : row.isOpen ? "\u25be" : "\u25b8"}</span>
      {row.label}
    </button>
  );
}

// Move a row to where the mouse lets it go.
function drag(picture: Picture, row: Row, down: PointerEvent, dragged: () => void): void {
  const button = down.currentTarget as HTMLElement;
  if (down.button !== 0) return;
  let hasMoved = false;
  const onMove = (event: PointerEvent) => {
    hasMoved ||= Math.abs(event.clientY - down.clientY) > DRAG_PX;
    button.classList.toggle("tl-dragged", hasMoved);
  };
  const onUp = (event: PointerEvent) => {
    removeEventListener("pointermove", onMove);
    removeEventListener("pointerup", onUp);
    button.classList.remove("tl-dragged");
    if (!hasMoved) return;
    if (event.target === button || button.contains(event.target as Node)) dragged();
    drop(picture, row, button, event.clientY);
  };
  addEventListener("pointermove", onMove);
  addEventListener("pointerup", onUp);
}

function drop(picture: Picture, row: Row, button: HTMLElement, clientY: number): void {
  const y = clientY - button.closest(".tl-labels")!.getBoundingClientRect().top;
  const { rows } = picture.layout;
  const at = picture.rowAt(y);
  const over = at < 0 ? rows.at(-1)! : rows[at];
  const [own] = row.key;
  const other = own === "p" ? `p${over.process}` : over.track >= 0 ? `t${over.track}` : "";
  if (!other || other === row.key) return;
  const isBehind = rows.findIndex(one => one.key === other) > rows.findIndex(one => one.key === row.key);
  move(row.key, placeBeside(picture.model, arrangement(), row.key, other, isBehind));
}
