import assert from "node:assert/strict";
import { test } from "node:test";
import type { TransportName } from "../../src/types.js";
import { flood } from "./flood.js";
import { startNode } from "./node.js";
import { clientOf } from "./world.js";

const ends = [
  { how: "killed", signal: "SIGKILL", times: 3 },
  { how: "stopped", signal: "SIGTERM", times: 1 }, // it says goodbye, and when to come back
] as const;

const transports: TransportName[] = ["websocket", "sse", "poll"];
const cases = transports.flatMap((transport) => ends.map((end) => ({ transport, ...end })));

for (const { transport, how, signal, times } of cases) {
  test(`nothing is lost, doubled or out of order over ${transport} while the node is ${how}`, {
    timeout: 120_000,
  }, async (t) => {
    const node = await startNode(t);
    await node.createTopic("orders", { partitions: 4 });
    const client = await clientOf(t, node, { reconnect: { minDelayMs: 20, maxDelayMs: 200 } }, transport);

    const reader = () => clientOf(t, node);
    await flood({ topic: "orders", client, reader }, async (acknowledged, records) => {
      assert.equal(client.transport, transport);
      for (let k = 1; k <= times; k++) {
        await acknowledged.at(Math.floor((k * records) / (times + 1)));
        await node.kill(signal);
        await node.start();
      }
    });
  });
}
