import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

/** What stands between a client and its node. It loses and delays, and never swaps or alters, as TCP. */
export interface Proxy {
  url: string;
  /** All connections end, as a reset. */
  cut(): void;
  /** What there is by now carries nothing any more, and does not end: the way is gone. */
  hang(): void;
  /** The same, but only for what comes from the node. */
  mute(): void;
  /** Everything takes so much longer. */
  delay(ms: number): void;
  /** Nobody gets through, until the next call. */
  refuse(refusing: boolean): void;
}

export async function startProxy(t: TestContext, target: () => string): Promise<Proxy> {
  const pairs = new Set<{ near: Socket; far: Socket; up: boolean; down: boolean }>();
  let delayMs = 0;
  let refusing = false;
  const server = createServer((near) => {
    if (refusing) return void near.resetAndDestroy();
    const { hostname, port } = new URL(target());
    const far = connect(Number(port), hostname);
    const pair = { near, far, up: true, down: true };
    pairs.add(pair);
    const carry = (from: Socket, to: Socket, direction: "up" | "down") => {
      let before: Promise<unknown> = Promise.resolve();
      from.on("data", (chunk) => {
        if (!pair[direction]) return;
        // Nothing overtakes what came before it, also where the delay has become shorter meanwhile.
        before = Promise.all([before, delayMs && pause(delayMs)]).then(() => pair[direction] && to.write(chunk));
      });
      from.on("error", () => {}); // its close follows
      from.on("close", () => {
        pairs.delete(pair);
        if (pair.up && pair.down) to.destroy();
        else if (from === near) far.destroy(); // a node whose end nobody hears of
      });
    };
    carry(near, far, "up");
    carry(far, near, "down");
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.close();
    for (const { near, far } of pairs) {
      near.destroy();
      far.destroy();
    }
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut() {
      for (const { near, far } of pairs) {
        near.resetAndDestroy();
        far.resetAndDestroy();
      }
    },
    hang() {
      for (const pair of pairs) pair.up = pair.down = false;
    },
    mute() {
      for (const pair of pairs) pair.down = false;
    },
    delay: (ms) => {
      delayMs = ms;
    },
    refuse: (now) => {
      refusing = now;
    },
  };
}
