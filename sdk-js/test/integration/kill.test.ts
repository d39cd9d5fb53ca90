import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, TransportName } from "../../src/types.js";
import { startNode } from "./node.js";
import { clientOf, counter } from "./world.js";

const keys = 6;
const records = 600;
const ends = [
  { how: "killed", signal: "SIGKILL", times: 3 },
  { how: "stopped", signal: "SIGTERM", times: 1 }, // it says goodbye, and when to come back
] as const;

const place = (m: Message) => `${m.partition}:${m.offset}`;

const transports: TransportName[] = ["websocket", "sse", "poll"];
const cases = transports.flatMap((transport) => ends.map((end) => ({ transport, ...end })));

for (const { transport, how, signal, times } of cases) {
  test(`nothing is lost, doubled or out of order over ${transport} while the node is ${how}`, {
    timeout: 120_000,
  }, async (t) => {
    const node = await startNode(t);
    await node.createTopic("orders", { partitions: 4 });
    const client = await clientOf(t, node, { reconnect: { minDelayMs: 20, maxDelayMs: 200 } }, transport);

    const seen: Message[] = [];
    const got = counter(records);
    const see = (m: Message) => {
      seen.push(m);
      got.hit();
    };
    const sub = client.subscribe("orders", see, { from: "earliest", credit: 32 });
    const gaps: unknown[] = [];
    sub.on("gap", (gap) => gaps.push(gap));
    await sub.ready();
    assert.equal(client.transport, transport);

    // Each key's next record goes out once half a dozen before it are acknowledged, and
    // the node is killed whenever another part of all has been.
    const acknowledged = counter(records);
    const publish = async (key: number) => {
      for (let i = key; i < records; i += keys) {
        const value = { i };
        const published = client.publish("orders", value, { key: `k${key}` }).then((p) => {
          assert.equal(p.topic, "orders");
          acknowledged.hit();
        });
        if (i % (6 * keys) === key) await published;
      }
    };
    const publishing = Promise.all(Array.from({ length: keys }, (_, key) => publish(key)));
    for (let k = 1; k <= times; k++) {
      await acknowledged.at(Math.floor((k * records) / (times + 1)));
      await node.kill(signal);
      await node.start();
    }
    await publishing;
    await acknowledged.reached;
    await got.reached;

    const reader = await clientOf(t, node);
    const log: Message[] = [];
    for await (const m of reader.history("orders")) log.push(m);
    const values = log.map((m) => (m.value as { i: number }).i).toSorted((a, b) => a - b);
    assert.deepEqual(
      values,
      Array.from({ length: records }, (_, i) => i),
      "every publish is in the log once",
    );
    for (let key = 0; key < keys; key++) {
      const ofKey = log.filter((m) => m.key === `k${key}`).map((m) => (m.value as { i: number }).i);
      assert.deepEqual(
        ofKey,
        ofKey.toSorted((a, b) => a - b),
        `the order of k${key}`,
      );
    }
    assert.deepEqual(seen.map(place).toSorted(), log.map(place).toSorted(), "the subscriber saw the log, once");
    for (let p = 0; p < 4; p++) {
      const offsets = seen.filter((m) => m.partition === p).map((m) => m.offset);
      assert.deepEqual(
        offsets,
        offsets.toSorted((a, b) => a - b),
        `the order of partition ${p}`,
      );
    }
    assert.deepEqual(gaps, []);
  });
}
