import { mayBeKept } from "../core/lane.js";
import { TidewireError } from "../error.js";
import { keyHash } from "../protocol/murmur3.js";
import { encodeRecord } from "../protocol/record.js";
import type { ClientOptions, Published, PublishOptions } from "../types.js";
import { onAbort } from "./abort.js";
import type { Core } from "./feature.js";
import { outbox, type Sending } from "./outbox.js";

export interface Publisher {
  publish(topic: string, value: unknown, opts?: PublishOptions): Promise<Published>;
  /** Calls back, once, when nothing is being published any more. */
  settled(fn: () => void): void;
}

const defaultTimeoutMs = 120_000;
const defaultWaiting = 1000;

/** What callers see of publishing: one promise for each record. */
export function publisher(core: Core, offline: ClientOptions["offline"]): Publisher {
  const { connection, clock } = core;
  const open = new Set<Sending>(); // whose callers wait
  const out = outbox(core, open);
  let idle = () => {};
  let order = 0;

  /** Throws what keeps a record from being taken in. */
  function admit(): void {
    const { state } = connection;
    if (state === "connected") return;
    const lost = state !== "idle" && state !== "connecting";
    const room = lost && offline?.mode === "reject" ? 0 : (offline?.max ?? defaultWaiting);
    if (open.size >= room) throw new TidewireError("offline", `no connection, and room for ${room} records`);
  }

  return {
    publish: (topic, value, opts = {}) =>
      new Promise((resolve, reject) => {
        const { key, acks, timeoutMs = defaultTimeoutMs, signal } = opts;
        signal?.throwIfAborted();
        admit();
        const r: Sending = {
          order: ++order,
          hash: key === undefined ? undefined : keyHash(key),
          body: encodeRecord(value, opts),
          acks,
          settle(error, published) {
            cancel();
            unabort();
            open.delete(r);
            if (published && !error) resolve(published);
            else reject(error);
            if (!open.size) idle();
          },
        };
        const unabort = onAbort(signal, () => giveUp(signal!.reason));
        const cancel = clock.after(timeoutMs, () => {
          const kept = mayBeKept(r);
          const late = new TidewireError(kept ? "unknown-outcome" : "timeout", `no answer within ${timeoutMs} ms`);
          giveUp(kept ? late : (r.error ?? late));
        });
        const giveUp = (error: unknown) => {
          r.settle(error);
          out.thin();
        };
        open.add(r);
        connection.connect();
        out.add(topic, r);
      }),
    settled(fn) {
      idle = fn;
      if (!open.size) idle();
    },
  };
}
