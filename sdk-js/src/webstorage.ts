import type { CursorStore } from "./types.js";

/** Keeps cursors in a browser's storage: `localStorage` unless told otherwise. */
export function webStorage(storage: Storage = localStorage): CursorStore {
  const key = (name: string) => `tidewire:${name}`;
  return {
    get: (name) => storage.getItem(key(name)),
    set: (name, cursor) => storage.setItem(key(name), cursor),
  };
}
