// What costs the program time, what removing it can save at most, and what shows it.

import type { Recording } from "../data/recording";
import { Loaded, useLoaded } from "../ui/loading";

interface Evidence {
  sql: string;
  columns: string[];
  rows: string[][];
}

export interface Finding {
  rule: string;
  title: string;
  where: string;
  price: string;
  certainty: string;
  proven: string;
  notes: string[];
  remedies: string[];
  evidence: Evidence[];
}

interface Data {
  found: Finding[];
  notes: string[];
}

export function Findings({ recording }: { recording: Recording }) {
  const state = useLoaded(() => findingsOf(recording), [recording]);
  return <Loaded state={state}>{data => <FindingsContent data={data} />}</Loaded>;
}

export function findingsOf(recording: Recording): Promise<Data> {
  return recording.json<Data>("page findings");
}

export function FindingsContent({ data }: { data: Data }) {
  return (
    <div class="findings">
      <h2>Findings</h2>
      <p class="quiet">
        A price is the most that removing the cause can save, with its 95 % interval. It counts only time of the thread that makes the steps; prices overlap and do not add up.
      </p>
      {data.found.length > 0 && (
        <ol>
          {data.found.map(one => (
            <One finding={one} key={one.rule + one.title} />
          ))}
        </ol>
      )}
      {data.notes.map(note => (
        <p key={note}>{note}</p>
      ))}
    </div>
  );
}

function One({ finding }: { finding: Finding }) {
  return (
    <li>
      <h3>{finding.title}</h3>
      <p>
        <code>{finding.rule}</code>
        {finding.where && <> at <code>{finding.where}</code></>}
      </p>
      <p>
        <strong>{`saves ${finding.price}`}</strong>
        {finding.certainty !== "certain" && `; ${finding.certainty}`}
        {finding.proven && `; ${finding.proven}`}
      </p>
      {finding.notes.map(note => (
        <p key={note}>{note}</p>
      ))}
      {finding.remedies.map(remedy => (
        <p key={remedy}>{`Try: ${remedy}`}</p>
      ))}
      <details>
        <summary>Evidence</summary>
        {finding.evidence.map(shown => (
          <Shown shown={shown} key={shown.sql} />
        ))}
      </details>
    </li>
  );
}

function Shown({ shown }: { shown: Evidence }) {
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="evidence">
        <table class="top">
          <thead>
            <tr>
              {shown.columns.map(name => (
                <th scope="col" key={name}>{name}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.rows.map((row, at) => (
              <tr key={at}>
                {row.map((value, column) => (
                  <td key={column}>{value}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <pre>{shown.sql}</pre>
    </>
  );
}
