// Everything of the chosen span, each other span in it one click away.

import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { MOST, nameOf, type NameSum, type OneSpan, type SpanStore, type Story } from "../data/span_store";
import type { Tracks } from "../data/tracks";
import { seconds } from "../state/address";
import { moduleName, name, step } from "../state/state";
import { count, duration, percent } from "../ui/format";
import { useLatest } from "../ui/loading";
import type { Actions } from "./actions";
import { kindOf, lineOf, moduleOf } from "./arguments";
import type { Later } from "./later";
import { trackLabel } from "./selection_panel";

interface Props {
  actions: Actions;
  spans: SpanStore;
  tracks: Tracks;
  later: Later | null;
  row: number;
}

type Known = Omit<Props, "row"> & { story: Story };

export function SpanDetails({ row, ...given }: Props) {
  const { actions, spans } = given;
  void spans.answers.value; // asked again when something has come
  const story = useLatest(spans.story(row));
  if (!story) return <p class="quiet" role="status">Reading {"\u2026"}</p>;
  const props = { ...given, story };
  const { span } = story;
  const called = nameOf(spans, span.cls);
  return (
    <section class="tl-span" aria-labelledby="tl-span">
      <h2 id="tl-span">
        <span class={`tl-key tl-layer-${spans.about.layers[spans.about.classes[span.cls][2]]}`} aria-hidden="true" /> <span class="tl-span-name">{short(called)}</span>
      </h2>
      <p>
        <button type="button" onClick={() => actions.picture.show(span)}>Show</button>{" "}
        <button type="button" onClick={() => (name.value = called)}>Filter by this name</button>{" "}
        <button type="button" onClick={() => actions.chooseNone()}>Close</button>
      </p>
      <Facts {...props} />
      <Above {...props} />
      <Below {...props} />
      <Samples {...props} />
      <Partners {...props} />
      <SameName {...props} />
    </section>
  );
}

const short = (text: string) => (text.length > 2000 ? `${text.slice(0, 2000)}\u2026` : text || "(no name)");

function Facts({ spans, tracks, later, story }: Known) {
  const { span, phase, weight } = story;
  const { self, dur } = span;
  const [path, className] = moduleOf(spans, tracks, span);
  const process = tracks.track(span.track)?.process ?? -1;
  const stepOf = span.step ? String(span.step - 1) : "";
  return (
    <dl class="facts">
      <Fact label="layer, kind" text={kindOf(spans, span)} />
      <Fact label="starts" text={`${seconds(span.start)} s`} />
      <Fact label="duration" text={exact(dur)} />
      <Fact label="self time" text={dur ? `${exact(self)}, ${percent(self / dur)}` : exact(self)} />
      <Fact label="thread" text={trackLabel(tracks, span.track)} />
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
      <Fact label="line" text={lineOf(spans, span)} />
      {spans.isUnfinished(span.row) && <Fact label="unfinished" text="it had not ended when the recording did" />}
      {weight !== 1 && <Fact label="weight" text={`${count(weight)}: it stands for that many, because steps were left out`} />}
      {later?.args.of(story.args).map(([key, value]) => <Fact key={key} label={key} text={short(value)} />)}
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

function SpanButton({ actions, spans, span }: { actions: Actions; spans: SpanStore; span: OneSpan }) {
  return (
    <button type="button" class="cell" onClick={() => void actions.choose(span.row, true)}>{short(nameOf(spans, span.cls))}</button>
  );
}

function Above({ actions, spans, story }: Known) {
  const { around, aroundCount } = story;
  if (!aroundCount) return null;
  return (
    <>
      <h3>Inside of</h3>
      <ol class="tl-chain">
        {around.length < aroundCount && <li class="quiet">{`${count(aroundCount - around.length)} more`}</li>}
        {around.map(above => (
          <li key={above.row}>
            <SpanButton actions={actions} spans={spans} span={above} /> {duration(above.dur)}
          </li>
        ))}
      </ol>
    </>
  );
}

function Below({ actions, spans, later, story }: Known) {
  const { below, belowCount, primitives, primitiveCount } = story;
  return (
    <>
      {belowCount > 0 && <h3>Directly below it</h3>}
      {belowCount > 0 && <NameSums actions={actions} spans={spans} sums={below} all={belowCount} />}
      {primitiveCount > 0 && <h3>Its primitives</h3>}
      {primitiveCount > 0 && (
        <ul class="tl-primitives">
          {primitives.map(({ span, args }) => (
            <li key={span.row}>
              <SpanButton actions={actions} spans={spans} span={span} /> {duration(span.dur)}
              {later?.args.of(args).map(([key, value]) => <small key={key}>{`${key}: ${short(value)}`}</small>)}
            </li>
          ))}
          {primitiveCount > MOST && <li class="quiet">{`${count(primitiveCount - MOST)} more`}</li>}
        </ul>
      )}
    </>
  );
}

function NameSums({ actions, spans, sums, all }: { actions: Actions; spans: SpanStore; sums: readonly NameSum[]; all: number }) {
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
        {sums.map(sum => (
          <tr key={`${sum.name} ${sum.layer}`}>
            <td><SpanButton actions={actions} spans={spans} span={sum.first} /></td>
            <td class="number">{count(sum.count)}</td>
            <td class="number" title={count(sum.total_ns)}>{duration(sum.total_ns)}</td>
          </tr>
        ))}
        {all > MOST && <tr><td class="quiet">{`${count(all - MOST)} more names`}</td></tr>}
      </tbody>
    </table>
  );
}

// Where its thread computed while it ran.
function Samples({ later, story: { span } }: Known) {
  const sums = useMemo(() => {
    const { cpu, places } = later ?? {};
    return cpu && places ? cpu.sums(places, span.track, span.start, span.start + span.dur) : [];
  }, [span, later]);
  if (!sums.length) return null;
  return (
    <>
      <h3>Samples of CPU time in it</h3>
      <ul class="tl-samples">
        {sums.map(sum => (
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
  launch_gpu: ["what it launched on a GPU", "the call that launched it"],
  operator_gpu: ["what it had a GPU do", "the operator that asked for it"],
  submit_execute: ["what was submitted", "where it was submitted"],
};

// Its primitives have their own list.
function Partners({ actions, spans, tracks, story: { partners, partnerCount } }: Known) {
  if (!partnerCount) return null;
  return (
    <>
      <h3>Linked</h3>
      <ul class="tl-links">
        {partners.map(({ isFrom, other, kind }) => {
          const meaning = MEANINGS[kind]?.[isFrom ? 0 : 1] ?? kind;
          return (
            <li key={`${kind} ${other.row}`}>
              {meaning}: <SpanButton actions={actions} spans={spans} span={other} /> {duration(other.dur)}, {trackLabel(tracks, other.track)}
            </li>
          );
        })}
        {partnerCount > MOST && <li class="quiet">{`${count(partnerCount - MOST)} more`}</li>}
      </ul>
    </>
  );
}

function SameName({ actions, story: { span, same } }: Known) {
  const go = (by: -1 | 1) => void actions.goToSameName(span.row, by);
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
