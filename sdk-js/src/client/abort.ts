/** Calls back when the signal is aborted; what it returns takes that back. */
export function onAbort(signal: AbortSignal | undefined, fn: () => void): () => void {
  signal?.addEventListener("abort", fn);
  return () => signal?.removeEventListener("abort", fn);
}
