import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { type Clock, systemClock } from "../../src/client/clock.js";
import type { Feature } from "../../src/client/feature.js";
import { createClient, history, poll, requests, sse, worker } from "../../src/index.js";
import type { ClientOptions, TransportName } from "../../src/types.js";
import { deadAddress, type TestNode, WebSocket } from "./node.js";

type Options = Partial<Omit<ClientOptions, "use">>;

/** A client of a node by one transport alone, that in the end leaves nothing behind: no timer, and no promise that rejects unheard. */
export async function clientOf(
  t: TestContext,
  node: Pick<TestNode, "url">,
  options: Options = {},
  by: TransportName = "websocket",
) {
  const { clock, pending } = countedClock(options.clock);
  const others = { websocket: [], sse: [sse()], poll: [poll()] }[by];
  const sockets = by === "websocket" ? WebSocket : await noWebSocket(t);
  const client = createClient({
    url: node.url,
    WebSocket: sockets,
    ...options,
    clock,
    use: [...others, history(), worker(), requests()] as Array<
      Feature<"transport" | "history" | "worker" | "requests">
    >,
  });
  const unheard: unknown[] = [];
  const hear = (reason: unknown) => void unheard.push(reason);
  process.on("unhandledRejection", hear);
  t.after(async () => {
    await client.close();
    await new Promise(setImmediate); // what is left over rejects by then
    process.off("unhandledRejection", hear);
    assert.deepEqual(unheard, []);
    assert.equal(pending(), 0, "a timer is left");
  });
  return client;
}

/** WebSockets as behind a proxy that lets none through. */
async function noWebSocket(t: TestContext): Promise<typeof WebSocket> {
  const dead = (await deadAddress(t)).replace("http", "ws");
  class Blocked extends (WebSocket as unknown as new (url: string, protocol: string) => object) {
    constructor(_url: string, protocol: string) {
      super(`${dead}/ws`, protocol);
    }
  }
  return Blocked as unknown as typeof WebSocket;
}

function countedClock(inner: Clock = systemClock): { clock: Clock; pending(): number } {
  let pending = 0;
  return {
    pending: () => pending,
    clock: {
      ...inner,
      after(ms, fn) {
        pending++;
        let open = true;
        const close = () => {
          if (open) pending--;
          open = false;
        };
        const cancel = inner.after(ms, () => {
          close();
          fn();
        });
        return () => {
          close();
          cancel();
        };
      },
    },
  };
}

/** Resolves when `count` is reached; `hit` counts. */
export function counter(count: number): {
  hit(): void;
  reached: Promise<void>;
  at(n: number): Promise<void>;
  n(): number;
} {
  let n = 0;
  const waits: Array<{ n: number; resolve(): void }> = [];
  const at = (want: number) =>
    new Promise<void>((resolve) => (n >= want ? resolve() : waits.push({ n: want, resolve })));
  return {
    n: () => n,
    at,
    reached: at(count),
    hit() {
      n++;
      for (const w of waits) if (w.n === n) w.resolve();
    },
  };
}

/** Time that runs so many times faster, for what would take half a minute. It can be stopped, as a browser stops that of a page. */
export function quickClock(times: number): Clock & { freeze(frozen: boolean): void } {
  const start = Date.now();
  let due: Array<() => void> | undefined;
  return {
    now: () => start + times * (Date.now() - start),
    random: Math.random,
    after(ms, fn) {
      let open = true;
      const run = () => open && fn();
      const cancel = systemClock.after(ms / times, () => (due ? due.push(run) : run()));
      return () => {
        open = false;
        cancel();
      };
    },
    freeze(frozen) {
      const late = due ?? [];
      due = frozen ? [] : undefined;
      for (const run of late) run();
    },
  };
}
