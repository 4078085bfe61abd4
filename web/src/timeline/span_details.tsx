// Everything of the chosen span, each other span in it one click away.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import type { Spans } from "../data/spans";
import type { Tracks } from "../data/tracks";
import { seconds } from "../state/address";
import { moduleName, name, step } from "../state/state";
import { count, duration, percent } from "../ui/format";
import type { Actions } from "./actions";
import type { Later } from "./later";
import type { Link } from "./links";
import { ancestors, byName, children, type Details, kindOf, lineOf, moduleOf, type NameSum, sameName } from "./one_span";
import { trackLabel } from "./selection_panel";

const MOST = 12;

interface Props {
  actions: Actions;
  spans: Spans;
  tracks: Tracks;
  later: Later | null;
  row: number;
}

type Known = Omit<Props, "later"> & { details: Details | null };

export function SpanDetails({ later, ...given }: Props) {
  const details = later?.details ?? null;
  const props = { ...given, details };
  const { actions, spans, row } = given;
  return (
    <section class="tl-span" aria-labelledby="tl-span">
      <h2 id="tl-span">
        <span class={`tl-key tl-layer-${spans.about.layers[spans.classOf(row)[2]]}`} aria-hidden="true" /> <span class="tl-span-name">{short(spans.name(row))}</span>
      </h2>
      <p>
        <button type="button" onClick={() => actions.picture.show(row)}>Show</button>{" "}
        <button type="button" onClick={() => (name.value = spans.name(row))}>Filter by this name</button>{" "}
        <button type="button" onClick={() => actions.choose(null)}>Close</button>
      </p>
      <Facts {...props} />
      <Above {...props} />
      <Below {...props} />
      {later && <Samples {...props} later={later} />}
      {details && <Partners {...props} links={details.links.of(row)} />}
      <SameName {...props} />
    </section>
  );
}

const short = (text: string) => (text.length > 2000 ? `${text.slice(0, 2000)}\u2026` : text || "(no name)");

function Facts({ spans, tracks, details, row }: Known) {
  const [path, className] = moduleOf(spans, tracks, row);
  const self = spans.self[row];
  const dur = spans.dur[row];
  const process = tracks.track(spans.trackOf(row))?.process ?? -1;
  const stepOf = spans.step[row] ? String(spans.step[row] - 1) : "";
  const phase = details?.phase(spans, row);
  const weight = details?.weight(row) ?? 1;
  return (
    <dl class="facts">
      <Fact label="layer, kind" text={kindOf(spans, row)} />
      <Fact label="starts" text={`${seconds(spans.start[row])} s`} />
      <Fact label="duration" text={exact(dur)} />
      <Fact label="self time" text={dur ? `${exact(self)}, ${percent(self / dur)}` : exact(self)} />
      <Fact label="thread" text={trackLabel(tracks, spans.trackOf(row))} />
      {path && (
        <Fact label="module">
          <button type="button" class="cell" onClick={() => (moduleName.value = path)}>{path}</button> {className}
        </Fact>
      )}
      {stepOf && (
        <Fact label="step">
          <button type="button" class="cell" onClick={() => (step.value = tracks.stepAddress(process, Number(stepOf)))}>{stepOf}</button>
          {phase && `, ${phase}`}
        </Fact>
      )}
      <Fact label="line" text={lineOf(spans, row)} />
      {spans.unfinished.has(row) && <Fact label="unfinished" text="it had not ended when the recording did" />}
      {weight !== 1 && <Fact label="weight" text={`${count(weight)}: it stands for that many, because steps were left out`} />}
      {details?.args(row).map(([key, value]) => <Fact key={key} label={key} text={short(value)} />)}
    </dl>
  );
}

// As people read it, and exactly.
function exact(ns: number): string {
  return Math.abs(ns) < 1000 ? duration(ns) : `${duration(ns)} (${count(ns)} ns)`;
}

function Fact({ label, text, children }: { label: string; text?: string; children?: ComponentChildren }) {
  if (text === "") return null;
  return (
    <div>
      <dt>{label}</dt>
      <dd>{text}{children}</dd>
    </div>
  );
}

function SpanButton({ actions, row, label }: { actions: Actions; row: number; label: string }) {
  return (
    <button type="button" class="cell" onClick={() => actions.choose(row, true)}>{short(label)}</button>
  );
}

function Above({ actions, spans, row }: Known) {
  const chain = ancestors(spans, row);
  if (!chain.length) return null;
  const shown = chain.slice(-40);
  return (
    <>
      <h3>Inside of</h3>
      <ol class="tl-chain">
        {shown.length < chain.length && <li class="quiet">{`${count(chain.length - shown.length)} more`}</li>}
        {shown.map(above => (
          <li key={above}>
            <SpanButton actions={actions} row={above} label={spans.name(above)} /> {duration(spans.dur[above])}
          </li>
        ))}
      </ol>
    </>
  );
}

function Below({ actions, spans, details, row }: Known) {
  const below = useMemo(() => children(spans, row), [spans, row]);
  const primitives = spans.about.layers.indexOf("primitives");
  const isPrimitive = (one: number) => spans.classOf(one)[2] === primitives;
  // Its primitives lie below it; those of another thread are linked.
  const linked = details?.links.of(row).filter(link => link.kind === "operator_primitive" && link.from === row).map(link => link.to) ?? [];
  const own = [...new Set([...below.filter(isPrimitive), ...linked])];
  const sums = byName(spans, below.filter(one => !isPrimitive(one)));
  return (
    <>
      {sums.length > 0 && <h3>Directly below it</h3>}
      {sums.length > 0 && <NameSums actions={actions} sums={sums} />}
      {own.length > 0 && <h3>Its primitives</h3>}
      {own.length > 0 && (
        <ul class="tl-primitives">
          {own.slice(0, MOST).map(one => (
            <li key={one}>
              <SpanButton actions={actions} row={one} label={spans.name(one)} /> {duration(spans.dur[one])}
              {details?.args(one).map(([key, value]) => <small key={key}>{`${key}: ${short(value)}`}</small>)}
            </li>
          ))}
          {own.length > MOST && <li class="quiet">{`${count(own.length - MOST)} more`}</li>}
        </ul>
      )}
    </>
  );
}

function NameSums({ actions, sums }: { actions: Actions; sums: NameSum[] }) {
  return (
    <table class="tl-children">
      <thead>
        <tr>
          <th scope="col">name</th>
          <th scope="col" class="number">count</th>
          <th scope="col" class="number">total</th>
        </tr>
      </thead>
      <tbody>
        {sums.slice(0, MOST).map(sum => (
          <tr key={`${sum.name} ${sum.layer}`}>
            <td><SpanButton actions={actions} row={sum.first} label={sum.name} /></td>
            <td class="number">{count(sum.count)}</td>
            <td class="number" title={count(sum.total_ns)}>{duration(sum.total_ns)}</td>
          </tr>
        ))}
        {sums.length > MOST && <tr><td class="quiet">{`${count(sums.length - MOST)} more names`}</td></tr>}
      </tbody>
    </table>
  );
}

// Where its thread computed while it ran.
function Samples({ spans, row, later }: Known & { later: Later }) {
  const { cpu, places } = later;
  const sums = useMemo(() => {
    const start = spans.start[row];
    return cpu && places ? cpu.sums(places, spans.trackOf(row), start, start + spans.dur[row]) : [];
  }, [spans, row, cpu, places]);
  if (!sums.length) return null;
  return (
    <>
      <h3>Samples of CPU time in it</h3>
      <ul class="tl-samples">
        {sums.slice(0, MOST).map(sum => (
          <li key={sum.place}>{`${duration(sum.ns)} in ${short(sum.place)}`}</li>
        ))}
        {sums.length > MOST && <li class="quiet">{`${count(sums.length - MOST)} more`}</li>}
      </ul>
    </>
  );
}

// What a link means, seen from either end.
const MEANINGS: Record<string, readonly [string, string]> = {
  forward_backward: ["its backward function", "the forward operator of it"],
  operator_primitive: ["its primitive", "the operator that asked for it"],
  primitive_share: ["part of it on another thread", "the primitive of which it is a part"],
  submit_execute: ["what was submitted", "where it was submitted"],
};

function Partners({ actions, spans, tracks, row, links }: Known & { links: Link[] }) {
  // Its primitives have their own list.
  const shown = links.filter(link => !(link.kind === "operator_primitive" && link.from === row));
  if (!shown.length) return null;
  return (
    <>
      <h3>Linked</h3>
      <ul class="tl-links">
        {shown.slice(0, MOST).map(({ from, to, kind }) => {
          const other = from === row ? to : from;
          const meaning = MEANINGS[kind]?.[from === row ? 0 : 1] ?? kind;
          return (
            <li key={`${kind} ${other}`}>
              {meaning}: <SpanButton actions={actions} row={other} label={spans.name(other)} /> {duration(spans.dur[other])}, {trackLabel(tracks, spans.trackOf(other))}
            </li>
          );
        })}
        {shown.length > MOST && <li class="quiet">{`${count(shown.length - MOST)} more`}</li>}
      </ul>
    </>
  );
}

function SameName({ actions, spans, row }: Known) {
  const same = useMemo(() => sameName(spans, row), [spans, row]);
  const go = (by: -1 | 1) => {
    const found = actions.ofSameName(row, by);
    if (found >= 0) actions.choose(found, true);
  };
  const times: [string, number][] = [
    ["total", same.total_ns],
    ["self", same.self_ns],
    ["mean", same.total_ns / same.count],
    ["min", same.min_ns],
    ["p50", same.p50_ns],
    ["p99", same.p99_ns],
    ["max", same.max_ns],
  ];
  return (
    <>
      <h3>All of this name</h3>
      <p class="tl-same">
        <button type="button" disabled={same.place === 1} onClick={() => go(-1)}>Previous</button> {`${count(same.place)} of ${count(same.count)}`}{" "}
        <button type="button" disabled={same.place === same.count} onClick={() => go(1)}>Next</button>
      </p>
      <dl class="tl-times">
        {times.map(([label, ns]) => (
          <div key={label}>
            <dt>{label}</dt>
            <dd title={count(ns)}>{duration(ns)}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}
