import type { From } from "../types.js";
import type { Core } from "./feature.js";

/** Keeps the cursor of one subscription between page loads. */
export interface CursorKeeper {
  /** Where to begin, if it is known. */
  stored(): Promise<From | undefined>;
  /** All before it is done with. It is stored within a second. */
  done(cursor: string): void;
  /** Stores it now; never rejects. */
  flush(): Promise<void>;
}

const storeEveryMs = 1000;

/** There is none without a name, or a store. */
export function cursorKeeper(
  { cursors, clock }: Core,
  name: string | undefined,
  failed: (thrown: unknown) => void,
): CursorKeeper | undefined {
  let latest: string | undefined; // not stored yet
  let cancel: (() => void) | undefined;

  if (!name || !cursors) return undefined;
  const self: CursorKeeper = {
    async stored() {
      const cursor = await cursors.get(name);
      return cursor ? { cursor } : undefined;
    },
    done(cursor) {
      latest = cursor;
      cancel ??= clock.after(storeEveryMs, self.flush);
    },
    async flush() {
      const cursor = latest;
      cancel?.();
      cancel = latest = undefined;
      try {
        if (cursor) await cursors.set(name, cursor);
      } catch (thrown) {
        failed(thrown);
      }
    },
  };
  return self;
}
