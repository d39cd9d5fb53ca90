import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { type Clock, systemClock } from "../../src/client/clock.js";
import type { Feature } from "../../src/client/feature.js";
import { createClient, history, poll, requests, sse, worker } from "../../src/index.js";
import type { ClientOptions, TransportName } from "../../src/types.js";
import { deadAddress, type TestNode, WebSocket } from "./node.js";

type Options = Partial<Omit<ClientOptions, "use">>;

/** A client of a node by one transport alone, that in the end leaves nothing behind: no timer, and no promise that rejects unheard. */
export async function clientOf(t: TestContext, node: TestNode, options: Options = {}, by: TransportName = "websocket") {
  const { clock, pending } = countedClock();
  const others = { websocket: [], sse: [sse()], poll: [poll()] }[by];
  const sockets = by === "websocket" ? WebSocket : await noWebSocket(t);
  const client = createClient({
    url: node.url,
    WebSocket: sockets,
    clock,
    ...options,
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

function countedClock(): { clock: Clock; pending(): number } {
  let pending = 0;
  return {
    pending: () => pending,
    clock: {
      ...systemClock,
      after(ms, fn) {
        pending++;
        let open = true;
        const close = () => {
          if (open) pending--;
          open = false;
        };
        const cancel = systemClock.after(ms, () => {
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
