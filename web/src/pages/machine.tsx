// What the program ran on: the machine, its limits, versions and variables.

import type { ComponentChildren } from "preact";
import type { Recording } from "../data/recording";
import { Loaded, useLoaded } from "../ui/loading";

interface Data {
  host: Record<string, unknown>;
  versions: Record<string, string>;
  environment: Record<string, string>;
  command: string[];
  cwd: string;
  started_utc: string;
  finished_utc: string;
  layers: { name: string; state: string; problem: string }[];
  window: string;
  imported_from: string;
  layerscope: string;
}

export function Machine({ recording }: { recording: Recording }) {
  const state = useLoaded(() => recording.json<Data>("page machine"), [recording]);
  return (
    <Loaded state={state}>
      {data => (
        <div class="machine">
          <Part title="Recording">
            <Facts
              facts={{
                command: data.command.join(" "),
                folder: data.cwd,
                started: data.started_utc,
                finished: data.finished_utc,
                window: data.window,
                "imported from": data.imported_from,
                layerscope: data.layerscope,
              }}
            />
          </Part>
          <Part title="Layers">
            <Facts facts={Object.fromEntries(data.layers.map(layer => [layer.name, [layer.state, layer.problem].filter(Boolean).join(": ")]))} />
          </Part>
          <Part title="Versions">
            <Facts facts={data.versions} />
          </Part>
          <Part title="Machine">
            <Facts facts={flattened(data.host)} />
          </Part>
          <Part title="Environment">
            <Facts facts={data.environment} />
          </Part>
        </div>
      )}
    </Loaded>
  );
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  const id = `machine-${title.toLowerCase()}`;
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}

function Facts({ facts }: { facts: Record<string, string> }) {
  const known = Object.entries(facts).filter(([, value]) => value !== "");
  if (!known.length) return <p class="quiet">Nothing is known.</p>;
  return (
    <dl class="facts">
      {known.map(([key, value]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

// Facts one inside the other as `cpu model`.
function flattened(value: unknown, path = ""): Record<string, string> {
  if (Array.isArray(value)) return { [path]: value.map(one => (typeof one === "object" ? JSON.stringify(one) : String(one))).join(", ") };
  if (value === null || value === undefined) return {};
  if (typeof value !== "object") return { [path]: String(value) };
  return Object.assign({}, ...Object.entries(value).map(([key, below]) => flattened(below, path ? `${path} ${key}` : key)));
}
