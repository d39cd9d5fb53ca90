import type { CursorStore, From } from "../types.js";
import type { Clock } from "./clock.js";

/** Keeps the cursor of one subscription between page loads. */
export interface CursorKeeper {
  /** Where to begin. */
  stored(): Promise<From>;
  /** All before it is done with. It is stored within a second. */
  done(cursor: string): void;
  /** Stores it now; never rejects. */
  flush(): Promise<void>;
}

const storeEveryMs = 1000;

export function cursorKeeper(
  store: CursorStore | undefined,
  name: string | undefined,
  clock: Clock,
  failed: (thrown: unknown) => void,
): CursorKeeper {
  let latest: string | undefined; // not stored yet
  let cancel: (() => void) | undefined;

  async function flush(): Promise<void> {
    cancel?.();
    cancel = undefined;
    const cursor = latest;
    latest = undefined;
    try {
      if (cursor) await store!.set(name!, cursor);
    } catch (thrown) {
      failed(thrown);
    }
  }
  return {
    async stored() {
      const cursor = name && (await store?.get(name));
      return cursor ? { cursor } : "latest";
    },
    done(cursor) {
      if (!name || !store) return;
      latest = cursor;
      cancel ??= clock.after(storeEveryMs, flush);
    },
    flush,
  };
}
