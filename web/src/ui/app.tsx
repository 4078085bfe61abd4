// The frame around the pages: menu, filters, keys.

import { useEffect, useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import { tracksOf } from "../data/tracks";
import { PAGES } from "../pages";
import { chips, goTo, hasAddress, page, step, stepProcesses } from "../state/state";
import { Help } from "./help";
import { actionOf } from "./keys";
import { isForScreen, Paper } from "./paper";
import { ThemeButton } from "./theme";
import { WholeRunNote } from "./whole_run";

export function App({ recording }: { recording: Recording }) {
  const [hasHelp, setHelp] = useState(false);
  const pages = recording.head.pages.filter(({ name }) => name in PAGES);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const action = actionOf(event, pages.map(({ name }) => name));
      if (!action) return;
      event.preventDefault();
      if (action === "help") setHelp(shown => !shown);
      else if (action === "escape") escape(hasHelp, () => setHelp(false));
      else goTo(action.page);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [hasHelp]);
  const namesProcess = step.value.includes(".");
  useEffect(() => {
    if (namesProcess) tracksOf(recording).then(tracks => (stepProcesses.value = tracks.stepProcesses), () => {}); // a page that needs it says so
  }, [recording, namesProcess]);
  const Page = PAGES[page.value];
  return (
    <>
      <header>
        <h1>{recording.head.run.name}</h1>
        <nav aria-label="pages">
          {pages.map(({ name, title }, at) => (
            <a key={name} href={`#${name}`} aria-current={page.value === name ? "page" : undefined} title={`key ${at + 1}`} onClick={event => follow(event, name)}>
              {title}
            </a>
          ))}
        </nav>
        <div class="tools">
          {hasAddress && <CopyLink />}
          <ThemeButton />
          <button type="button" onClick={() => setHelp(true)} aria-haspopup="dialog">
            Keys
          </button>
        </div>
      </header>
      <Chips />
      <WholeRunNote />
      {recording.head.notes.map(note => (
        <p key={note} class="notice" role="note">
          {note}
        </p>
      ))}
      <Paper recording={recording} />
      <main id="main" class={isForScreen() ? "for-screen" : undefined}>{Page ? <Page recording={recording} /> : <p>There is no such page.</p>}</main>
      {hasHelp && <Help close={() => setHelp(false)} />}
    </>
  );
}

// Escape takes away what came last.
function escape(hasHelp: boolean, closeHelp: () => void): void {
  if (hasHelp) closeHelp();
  else chips.value.at(-1)?.remove();
}

function follow(event: MouseEvent, name: string): void {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  goTo(name);
}

function Chips() {
  return (
    <div class="chips" role="status" aria-live="polite" aria-label="filters">
      {chips.value.map(chip => (
        <button type="button" key={chip.label} class="chip" onClick={chip.remove} aria-label={`take away the filter ${chip.label}`}>
          {chip.label} <span aria-hidden="true">{"\u00d7"}</span>
        </button>
      ))}
    </div>
  );
}

function CopyLink() {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(location.href);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <button type="button" onClick={copy}>
      {isCopied ? "Copied" : "Copy link"}
    </button>
  );
}
