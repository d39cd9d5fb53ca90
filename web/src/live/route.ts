import { computed, signal } from "@preact/signals";
import { href, parseRoute } from "../core/route.js";

const hash = signal(location.hash);
window.addEventListener("hashchange", () => {
  hash.value = location.hash;
});

export const route = computed(() => parseRoute(hash.value));

export function go(path: readonly (string | number)[], query?: Record<string, string | number | undefined>): void {
  location.hash = href(path, query);
}

/** Changes the query of where the page is, without a step in the history. */
export function setQuery(change: Record<string, string | number | undefined>): void {
  const { path, query } = route.value;
  history.replaceState(null, "", href(path, { ...query, ...change }));
  hash.value = location.hash;
}
