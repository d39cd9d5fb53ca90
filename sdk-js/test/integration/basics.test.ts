import assert from "node:assert/strict";
import { test } from "node:test";
import type { Message, Published, TransportName } from "../../src/types.js";
import { sharedNode, startNode } from "./node.js";
import { clientOf, counter } from "./world.js";

const node = sharedNode();

let topics = 0;
const newTopic = () => `orders-${++topics}`;

async function take(source: AsyncIterable<Message>, n: number): Promise<Message[]> {
  const taken: Message[] = [];
  for await (const m of source) {
    taken.push(m);
    if (taken.length === n) break;
  }
  return taken;
}

for (const transport of ["websocket", "sse", "poll"] satisfies TransportName[]) {
  test(`values of every kind travel over ${transport}`, { timeout: 60_000 }, async (t) => {
    const orders = newTopic();
    await node.createTopic(orders, { partitions: 3 });
    const client = await clientOf(t, node, {}, transport);
    const sub = client.subscribe(orders, { from: "earliest" });
    const bytes = Uint8Array.from({ length: 1000 }, (_, i) => i);
    const values = [{ a: [1, "ä€😀", null] }, "text", 3.5, null, bytes, "x".repeat(300_000)];
    const published: Published[] = [];
    for (const [i, value] of values.entries()) {
      const contentType = value === "text" ? "text/plain" : undefined;
      published.push(await client.publish(orders, value, { key: `k${i}`, headers: { n: String(i) }, contentType }));
    }
    const got = await take(sub, values.length);
    assert.equal(client.transport, transport);
    for (const [i, value] of values.entries()) {
      const m = got.find((x) => x.key === `k${i}`)!;
      assert.deepEqual(m.value, value);
      assert.deepEqual(m.headers, { n: String(i) });
      const { partition, offset, duplicate } = published[i]!;
      assert.deepEqual(
        { partition, offset, duplicate },
        { partition: m.partition, offset: m.offset, duplicate: false },
      );
    }
  });

  test(`a batch, filters, acks and refusals over ${transport}`, { timeout: 60_000 }, async (t) => {
    const orders = newTopic();
    await node.createTopic(orders, { partitions: 4, max_message_bytes: 10_000 });
    const client = await clientOf(t, node, {}, transport);
    const sub = client.subscribe(orders, { keyPrefix: "b", from: "earliest" });
    const one = client.subscribe(orders, { key: "a1", from: "earliest" });
    const items = ["a1", "b1", "a2", "b2", "a1"].map((key, value) => ({ key, value }));
    const batch = await client.publishBatch(orders, items);
    assert.equal(batch.length, 5);
    assert.deepEqual((await take(sub, 2)).map((m) => m.value).toSorted(), [1, 3]);
    assert.deepEqual(
      (await take(one, 2)).map((m) => m.value),
      [0, 4],
    );

    await assert.rejects(client.publish("nowhere", 1), { code: "topic-not-found" });
    // Two that are refused among others that are not: they use numbers up, or leave them.
    const outcomes = await Promise.allSettled([
      client.publish(orders, 1, { key: "k" }),
      client.publish(orders, "x".repeat(20_000), { key: "k" }),
      client.publish(orders, "not json", { key: "k", contentType: "nonsense" }),
      client.publish(orders, 2, { key: "k" }),
    ]);
    assert.deepEqual(
      outcomes.map((o) => (o.status === "rejected" ? o.reason.code : o.value.offset! >= 0)),
      [true, "message-too-large", "invalid", true],
    );
    assert.equal((await client.publish(orders, 3, { key: "k", acks: "leader" })).duplicate, false);
    const none = await client.publish(orders, 4, { key: "k", acks: "none" });
    assert.equal(none.offset, undefined);
  });

  test(`a cursor of one client goes on in another, over ${transport}`, { timeout: 60_000 }, async (t) => {
    const orders = newTopic();
    await node.createTopic(orders, { partitions: 3 });
    const writer = await clientOf(t, node);
    await writer.publishBatch(
      orders,
      Array.from({ length: 90 }, (_, value) => ({ value })),
    );
    const client = await clientOf(t, node, {}, transport);
    let rest: Message[] = [];
    let cursor: string | undefined;
    for (const name of ["websocket", transport, "sse", "poll"] satisfies TransportName[]) {
      const reader = await clientOf(t, node, {}, name);
      const sub = reader.subscribe(orders, { from: cursor ? { cursor } : "earliest", credit: 4 });
      const iterator = sub[Symbol.asyncIterator]();
      for (let i = 0; i < 20; i++) rest.push((await iterator.next()).value);
      cursor = sub.cursor;
      await sub.unsubscribe();
    }
    for await (const m of client.history(orders, { from: { cursor: cursor! } })) rest = [...rest, m];
    assert.deepEqual(
      rest.map((m) => Number(m.value)).toSorted((a, b) => a - b),
      Array.from({ length: 90 }, (_, i) => i),
    );
  });
}

test("caught-up, recovered and a gap, as the node tells them", { timeout: 60_000 }, async (t) => {
  const orders = newTopic();
  await node.createTopic(orders, { partitions: 2 });
  const client = await clientOf(t, node);
  await client.publishBatch(
    orders,
    Array.from({ length: 500 }, (_, value) => ({ value })),
  );
  let handed = 0;
  const sub = client.subscribe(orders, () => void handed++, { from: "earliest", credit: 20 });
  await new Promise<void>((resolve) => sub.on("caught-up", () => resolve()));
  assert.equal(handed, 500);
  assert.equal(sub.state, "live");

  const { cursor } = sub;
  await node.deleteTopic(orders);
  await node.createTopic(orders, { partitions: 2 });
  await client.publish(orders, "new");
  const other = client.subscribe(orders, { from: { cursor } });
  const gap = new Promise<{ reason: string }>((resolve) => other.on("gap", resolve));
  assert.deepEqual(await other.ready(), { recovered: false });
  const [m] = await take(other, 1);
  assert.equal(m!.value, "new");
  assert.equal((await gap).reason, "other-topic");
});

test("a topic that is deleted ends its subscription with an error", { timeout: 60_000 }, async (t) => {
  const orders = newTopic();
  await node.createTopic(orders);
  const client = await clientOf(t, node);
  const sub = client.subscribe(orders);
  await sub.ready();
  await Promise.all([assert.rejects(take(sub, 1), { code: "topic-not-found" }), node.deleteTopic(orders)]);
  assert.equal(sub.state, "closed");
});

test("a node that nobody can reach fails the client that does not reconnect", async (t) => {
  const node = await startNode(t);
  await node.kill();
  const client = await clientOf(t, node, { reconnect: false });
  await assert.rejects(client.connect(), { code: "network" });
  await assert.rejects(client.publish("orders", 1), { code: "network" });
});

test("a thousand records of a thousand keys arrive", { timeout: 60_000 }, async (t) => {
  const orders = newTopic();
  await node.createTopic(orders, { partitions: 16 });
  const client = await clientOf(t, node);
  const got = counter(3000);
  await client.connect();
  const sub = client.subscribe(orders, got.hit, { from: "earliest" });
  await client.publishBatch(
    orders,
    Array.from({ length: 3000 }, (_, value) => ({ value, key: `k${value % 1000}` })),
  );
  await got.reached;
  await sub.unsubscribe();
});
