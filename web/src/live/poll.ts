import { type ReadonlySignal, useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Polled<T> {
  /** The latest answer, also while later ones fail. */
  value: T | undefined;
  error: Error | undefined;
  /** When it came, in milliseconds since 1970. */
  atMs: number;
}

/** Waits, or until the signal aborts, or somebody looks at the page again. */
const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    const look = () => {
      if (!document.hidden) done();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done);
    document.addEventListener("visibilitychange", look);
  });

/**
 * Asks again and again, one call at a time, until the signal aborts. While nobody looks
 * at the page it asks nothing.
 */
export async function poll<T>(
  ask: (signal: AbortSignal) => Promise<T>,
  everyMs: number,
  tell: (polled: Partial<Polled<T>>) => void,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    const began = performance.now();
    if (!document.hidden) {
      try {
        const value = await ask(signal);
        if (!signal.aborted) tell({ value, error: undefined, atMs: Date.now() });
      } catch (thrown) {
        if (!signal.aborted) tell({ error: thrown instanceof Error ? thrown : new Error(String(thrown)) });
      }
    }
    await pause(Math.max(everyMs / 4, everyMs - (performance.now() - began)), signal);
  }
}

/** What `ask` says, asked every `everyMs` as long as the component is there; anew when `key` changes. */
export function usePolled<T>(
  key: string,
  ask: (signal: AbortSignal) => Promise<T>,
  everyMs: number,
): { polled: ReadonlySignal<Polled<T>>; again(): void } {
  const state = useSignal<Polled<T>>({ value: undefined, error: undefined, atMs: 0 });
  const turn = useSignal(0);
  const latest = useRef(ask);
  latest.current = ask;
  const keyed = useSignal(key);
  useEffect(() => {
    keyed.value = key;
  }, [key]);
  const run = useComputed(() => `${keyed.value} ${turn.value}`);
  const before = useRef(key);
  useSignalEffect(() => {
    void run.value;
    if (before.current !== keyed.value) {
      before.current = keyed.value;
      state.value = { value: undefined, error: undefined, atMs: 0 };
    }
    const life = new AbortController();
    void poll(
      (signal) => latest.current(signal),
      everyMs,
      (part) => {
        state.value = { ...state.value, ...part };
      },
      life.signal,
    );
    return () => life.abort();
  });
  return {
    polled: state,
    again() {
      turn.value++;
    },
  };
}
