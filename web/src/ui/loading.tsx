// What is read from the page or the server first, and said when it cannot be.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

type State<T> = { value: T } | { error: string } | null;

// The value of a promise; null until it is there. Asked again when one of `of` changes.
export function useLoaded<T>(load: () => Promise<T>, of: readonly unknown[]): State<T> {
  const [state, setState] = useState<State<T>>(null);
  useEffect(() => {
    let isWanted = true;
    setState(null);
    load().then(
      value => isWanted && setState({ value }),
      (error: unknown) => isWanted && setState({ error: sentence(error) }),
    );
    return () => {
      isWanted = false;
    };
  }, of);
  return state;
}

// What was there last, while what was asked for since then is on its way.
export function useLatest<T>(value: T | undefined): T | undefined {
  const last = useRef<T | undefined>(undefined);
  if (value !== undefined) last.current = value;
  return last.current;
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function Loaded<T>({ state, children }: { state: State<T>; children: (value: T) => ComponentChildren }) {
  if (!state) return <p class="quiet" role="status">Reading {"\u2026"}</p>;
  if ("error" in state) return <p role="alert">This part of the report cannot be read: {state.error}</p>;
  return <>{children(state.value)}</>;
}
