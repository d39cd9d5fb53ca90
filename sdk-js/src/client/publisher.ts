import { TidewireError } from "../error.js";
import { keyHash } from "../protocol/murmur3.js";
import { encodeRecord } from "../protocol/record.js";
import type { ClientOptions, Published, PublishOptions } from "../types.js";
import { onAbort } from "./abort.js";
import type { Clock } from "./clock.js";
import type { Connection } from "./connection.js";
import { outbox, type Sending } from "./outbox.js";

export interface Publisher {
  publish(topic: string, value: unknown, opts?: PublishOptions): Promise<Published>;
  /** Resolves once nothing is being published. */
  settled(): Promise<void>;
}

const defaultTimeoutMs = 120_000;
const defaultWaiting = 1000;

/** What callers see of publishing: one promise for each record. */
export function publisher(connection: Connection, clock: Clock, offline: ClientOptions["offline"]): Publisher {
  const out = outbox(connection, clock);
  const open = new Set<Sending>(); // whose callers wait
  const idle: Array<() => void> = [];
  let order = 0;

  connection.join({
    up: out.up,
    down: out.down,
    end(error) {
      out.end(error);
      for (const r of open) r.settle(mayBeKept(r) ? new TidewireError("unknown-outcome", error.message) : error);
    },
  });

  /** Throws what keeps a record from being taken in. */
  function admit(): void {
    const { state } = connection;
    if (state === "connected") return;
    if (offline?.mode === "reject" && (state === "reconnecting" || state === "suspended")) {
      throw new TidewireError("offline", "there is no connection");
    }
    if (open.size >= (offline?.max ?? defaultWaiting)) {
      throw new TidewireError("offline", `there is no connection, and ${open.size} records wait for one`);
    }
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
          flying: false,
          doubt: false,
          settle(outcome) {
            finish();
            outcome instanceof TidewireError ? reject(outcome) : resolve(outcome);
          },
        };
        const finish = () => {
          cancel();
          unabort();
          open.delete(r);
          if (!open.size) for (const wake of idle.splice(0)) wake();
        };
        const unabort = onAbort(signal, () => {
          finish();
          reject(signal!.reason);
          out.abandon(topic, r);
        });
        const cancel = clock.after(timeoutMs, () => {
          const code = mayBeKept(r) ? "unknown-outcome" : "timeout";
          r.settle((code === "timeout" && r.error) || new TidewireError(code, `no answer within ${timeoutMs} ms`));
          out.abandon(topic, r);
        });
        open.add(r);
        connection.want();
        out.add(topic, r);
      }),
    settled: () => (open.size ? new Promise((resolve) => idle.push(resolve)) : Promise.resolve()),
  };
}

const mayBeKept = (r: Sending): boolean => r.flying || r.doubt;
