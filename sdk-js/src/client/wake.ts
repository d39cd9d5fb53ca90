/** Calls `wake` when a browser says that the network is back or that the page is looked at again. */
export function watchNetwork(wake: () => void, signal: AbortSignal): void {
  for (const name of ["online", "pageshow", "visibilitychange"]) {
    globalThis.addEventListener?.(name, wake, { signal });
  }
}
