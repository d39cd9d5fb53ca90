import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { stage } from "./stage.js";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

test("hundreds of lost connections leave no timer, and no memory behind", async (t) => {
  const { clock, server, client } = stage(t, { reconnect: { minDelayMs: 1, maxDelayMs: 10 } });
  server.topic("orders");
  const sub = client.subscribe("orders", () => {}, { from: "earliest" });
  const lose = async (times: number) => {
    for (let i = 0; i < times; i++) {
      for (const c of server.connections.splice(0)) c.close();
      void client.publish("orders", "x".repeat(100));
      await clock.advance(40);
      server.received.length = server.dialled.length = 0;
    }
    await clock.advance(2000);
    collect();
    return { timers: clock.pending, heap: process.memoryUsage().heapUsed };
  };
  await lose(100);
  const before = await lose(100);
  const after = await lose(400);
  assert.equal(after.timers, before.timers);
  // What the server has kept grows: some 300 bytes for each record.
  const grown = after.heap - before.heap;
  assert.ok(grown < 1_000_000, `${grown} bytes more`);
  await sub.unsubscribe();
});
