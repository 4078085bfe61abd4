// Where the time went: frames inside of the frames that called them, of the whole run or of what is
// chosen.

import { useEffect, useState } from "preact/hooks";
import type { Recording } from "../data/recording";
import { parsedStep } from "../data/steps";
import { type Choice, OUTSIDE } from "../flame/choice";
import { SAMPLE_KINDS } from "../flame/from_samples";
import type { By } from "../flame/groups";
import { comparedBlock, isMemory, type KindAbout, type Look, type Picture, pictureOf } from "../flame/picture";
import { ReportPicture } from "../flame/report_picture";
import { TreeTable } from "../flame/tree_table";
import type { FrameDetail } from "../flame/viewer";
import { seconds } from "../state/address";
import { minor, moduleName, name, own, step, time, tracks } from "../state/state";
import { isTyping } from "../ui/keys";
import { Loaded, useLoaded } from "../ui/loading";

interface PageAbout {
  kinds: Record<string, KindAbout>;
  first: string;
  layers: string[];
}

const BY: readonly [By, string][] = [
  ["none", "nothing"],
  ["thread", "threads"],
  ["process", "processes"],
  ["rank", "ranks"],
  ["step", "steps"],
];

export function Flame({ recording }: { recording: Recording }) {
  const state = useLoaded(() => recording.json<PageAbout>("page flame"), [recording]);
  return <Loaded state={state}>{about => <FlamePage recording={recording} about={about} />}</Loaded>;
}

function set(key: string, value: string): void {
  minor(() => {
    own.value = { ...own.value, [key]: value };
  });
}

function lookOf(recording: Recording, { kinds, first, layers }: PageAbout): Look {
  const wanted = own.value["kind"] ?? first;
  const kind = wanted in kinds ? wanted : first;
  const isOfMemory = isMemory(kinds[kind]!);
  const named = (own.value["layers"] ?? "").split(",").filter(layer => layers.includes(layer));
  return {
    kind,
    about: kinds[kind]!,
    choice: choiceOf(),
    layers: named.length && !isOfMemory ? new Set(named) : null,
    by: (!isOfMemory && BY.find(([by]) => by === own.value["by"])?.[0]) || "none",
    isInverted: own.value["inverted"] === "yes",
    isCompared: own.value["compared"] === "yes" && recording.has(comparedBlock(kind)),
  };
}

function choiceOf(): Choice {
  const of = parsedStep(step.value);
  return {
    time: time.value,
    steps: of && [of.from, of.to],
    process: of && of.process,
    tracks: tracks.value && new Set(tracks.value),
    module: moduleName.value,
    name: name.value,
  };
}

function FlamePage({ recording, about }: { recording: Recording; about: PageAbout }) {
  const look = lookOf(recording, about);
  const of = [look.kind, look.isCompared, look.isInverted, look.by, own.value["layers"], time.value, step.value, tracks.value, moduleName.value, name.value];
  const state = useLoaded(() => pictureOf(recording, look), of);
  return (
    <div class="flame-page">
      <Controls recording={recording} about={about} look={look} />
      <Loaded state={state}>{found => ("problem" in found ? <p class="flame-nothing">{found.problem}</p> : <Shown picture={found} look={look} />)}</Loaded>
      <Command recording={recording} look={look} />
    </div>
  );
}

function Controls({ recording, about, look }: { recording: Recording; about: PageAbout; look: Look }) {
  const isSampled = look.kind in SAMPLE_KINDS;
  if (look.isCompared) return <Kinds about={about} look={look} recording={recording} />;
  return (
    <div class="controls">
      <Kinds recording={recording} about={about} look={look} />
      {!isMemory(look.about) && (
        <label>
          By{" "}
          <select value={look.by} onChange={event => set("by", event.currentTarget.value)}>
            {BY.map(([by, title]) => (
              <option key={by} value={by}>{title}</option>
            ))}
          </select>
        </label>
      )}
      <label>
        <input type="checkbox" checked={look.isInverted} onChange={event => set("inverted", event.currentTarget.checked ? "yes" : "")} /> innermost first
      </label>
      {isSampled && <Layers about={about} look={look} />}
    </div>
  );
}

// Which kind, and whether against the recording before: that is of both whole recordings.
function Kinds({ recording, about, look }: { recording: Recording; about: PageAbout; look: Look }) {
  return (
    <span class="kinds">
      <label>
        Kind{" "}
        <select value={look.kind} onChange={event => set("kind", event.currentTarget.value)}>
          {Object.entries(about.kinds).map(([kind, { title }]) => (
            <option key={kind} value={kind}>{title}</option>
          ))}
        </select>
      </label>
      {recording.has(comparedBlock(look.kind)) && (
        <label>
          <input type="checkbox" checked={look.isCompared} onChange={event => set("compared", event.currentTarget.checked ? "yes" : "")} /> against the recording before
        </label>
      )}
    </span>
  );
}

function Layers({ about, look }: { about: PageAbout; look: Look }) {
  const toggle = (layer: string, isShown: boolean) => {
    const now = new Set(look.layers ?? []);
    if (isShown) now.add(layer);
    else now.delete(layer);
    set("layers", about.layers.filter(one => now.has(one)).join(","));
  };
  return (
    <details class="columns">
      <summary>{look.layers ? `Layers: ${[...look.layers].join(", ")}` : "Layers"}</summary>
      {about.layers.map(layer => (
        <label key={layer}>
          <input type="checkbox" checked={look.layers?.has(layer) ?? false} onChange={event => toggle(layer, event.currentTarget.checked)} /> {layer}
        </label>
      ))}
    </details>
  );
}

function Shown({ picture, look }: { picture: Picture; look: Look }) {
  const [isTable, setTable] = useState(false);
  const [frame, setFrame] = useState<FrameDetail | null>(null);
  useEffect(() => setFrame(null), [picture]);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key === "t" && !isTyping(event) && !event.ctrlKey && !event.metaKey && !event.altKey) setTable(is => !is);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  return (
    <>
      <p class="flame-says" role="status">
        {picture.says}{" "}
        <button type="button" title="key t" onClick={() => setTable(!isTable)}>{isTable ? "As a picture" : "As a table"}</button>
      </p>
      {isTable ? (
        <TreeTable data={picture.data} tree={picture.tree} />
      ) : (
        <>
          {!picture.data.compared && <Key picture={picture} />}
          <ReportPicture picture={picture} label={`${look.about.title}: flame graph`} search={own.value["search"] ?? ""} onFrame={setFrame} onSearch={words => set("search", words)} />
          {frame && frame.node > 0 && <Chosen frame={frame} picture={picture} />}
        </>
      )}
      {picture.notes.map(note => (
        <p key={note} class="note">{note}</p>
      ))}
    </>
  );
}

// What the colours mean.
function Key({ picture }: { picture: Picture }) {
  const layers = new Set(picture.tree.colours.slice(1).map(colour => colour.split(" ")[0]!));
  return (
    <ul class="flame-key" aria-label="colours">
      {[...layers].sort().map(layer => (
        <li key={layer}>
          <span class={`key ${layer}`} aria-hidden="true" />
          {layer}
        </li>
      ))}
    </ul>
  );
}

// What the chosen frame says, and filters of all pages that it leads to.
function Chosen({ frame, picture }: { frame: FrameDetail; picture: Picture }) {
  const { layer, name: called } = picture.data.frames[frame.frame]!;
  const filter = { operators: name, primitives: name, ranges: name, modules: moduleName }[layer];
  return (
    <section class="flame-chosen" aria-labelledby="flame-chosen">
      <h2 id="flame-chosen">{frame.label}</h2>
      <ul>
        {frame.lines.map(line => (
          <li key={line}>{line}</li>
        ))}
      </ul>
      {filter && (
        <button type="button" onClick={() => (filter.value = called ?? frame.label)}>
          {layer === "modules" ? "Only this module" : "Only this name"}
        </button>
      )}
    </section>
  );
}

// The same in the terminal, which follows no names, tracks and processes.
function Command({ recording, look }: { recording: Recording; look: Look }) {
  if (look.isCompared || look.choice.name || look.choice.tracks || look.choice.process !== null || look.choice.module === OUTSIDE) return null;
  return (
    <p class="quiet command">
      In the terminal: <code>{commandOf(recording, look)}</code>
    </p>
  );
}

// A word as a shell takes it.
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function commandOf(recording: Recording, { kind, choice, layers, by, isInverted }: Look): string {
  const words = ["layerscope flame", quoted(recording.head.run.name), `--kind ${kind}`];
  if (choice.time) words.push(`--time ${seconds(choice.time[0])}:${seconds(choice.time[1])}`);
  if (choice.steps) words.push(`--step ${choice.steps[0]}:${choice.steps[1]}`);
  if (choice.module) words.push(`--module ${quoted(choice.module)}`);
  if (layers) words.push(`--layers ${[...layers].join(",")}`);
  words.push(`--by ${by}`);
  if (isInverted) words.push("--invert");
  return words.join(" ");
}
