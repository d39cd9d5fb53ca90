import assert from "node:assert/strict";
import { test } from "node:test";
import type { Client, Message, WorkItem } from "../../src/types.js";
import { sharedNode, startNode } from "./node.js";
import { clientOf, counter } from "./world.js";

const node = sharedNode();

test("two workers share a topic: each record is done once, each key's in order", { timeout: 60_000 }, async (t) => {
  await node.createTopic("jobs", { partitions: 4 });
  const producer = await clientOf(t, node);
  const done = counter(200);
  const seen: number[][] = [[], []];
  for (const list of seen) {
    const client = await clientOf(t, node);
    const handler = (item: WorkItem) => {
      list.push(Number(item.value));
      done.hit();
    };
    const w = client.worker("billing", "jobs", handler, { concurrency: 4 });
    await new Promise<void>((resolve) => w.on("assigned", () => resolve()));
  }
  await producer.publishBatch(
    "jobs",
    Array.from({ length: 200 }, (_, value) => ({ value, key: `k${value % 10}` })),
  );
  await done.reached;
  const all = seen.flat();
  assert.deepEqual(
    all.toSorted((a, b) => a - b),
    Array.from({ length: 200 }, (_, i) => i),
  );
  for (const list of seen) {
    for (let k = 0; k < 10; k++) {
      const ofKey = list.filter((v) => v % 10 === k);
      assert.deepEqual(
        ofKey,
        ofKey.toSorted((a, b) => a - b),
      );
    }
  }
});

test("what fails comes again, and what is rejected goes to the dead letters", { timeout: 60_000 }, async (t) => {
  await node.createTopic("tasks");
  const client = await clientOf(t, node);
  const deliveries: string[] = [];
  const done = counter(3);
  const handler = async (item: WorkItem) => {
    deliveries.push(`${item.value} ${item.delivery}`);
    if (item.value === "flaky" && item.delivery === 1) throw new Error("try again");
    if (item.value === "poison") throw new Error("cannot be done");
    done.hit();
  };
  const onError = (_: unknown, { value }: WorkItem) => (value === "poison" ? ("reject" as const) : { retryInMs: 10 });
  client.worker("crew", "tasks", handler, { mode: "exclusive", onError });
  for (const value of ["flaky", "poison", "fine", "last"]) await client.publish("tasks", value);
  await done.reached;
  assert.deepEqual(deliveries.toSorted(), ["fine 1", "flaky 1", "flaky 2", "last 1", "poison 1"]);
  const letter = await first(client, "tasks.crew.dlq");
  assert.equal(letter.value, "poison");
  assert.match(Object.entries(letter.headers).find(([name]) => /dead-reason/i.test(name))![1], /cannot be done/);
});

/** The first message of a topic, which may be made only when it is needed. */
async function first(client: Client, topic: string): Promise<Message> {
  for (;;) {
    try {
      for await (const m of client.subscribe(topic, { from: "earliest" })) return m;
    } catch (thrown) {
      assert.equal((thrown as { code: string }).code, "topic-not-found");
    }
  }
}

test("a worker goes on through kills of its node, and all is done in the end", { timeout: 120_000 }, async (t) => {
  const own = await startNode(t);
  await own.createTopic("jobs", { partitions: 3 });
  const client = await clientOf(t, own, { reconnect: { minDelayMs: 20, maxDelayMs: 200 } });
  const records = 150;
  const distinct = new Set<number>();
  const done = counter(records);
  const w = client.worker(
    "billing",
    "jobs",
    ({ value }) => {
      if (distinct.size < distinct.add(Number(value)).size) done.hit();
    },
    { concurrency: 4, leaseMs: 1000, mode: "exclusive" },
  );
  const publishing = (async () => {
    for (let i = 0; i < records; i++) await client.publish("jobs", i, { key: `k${i % 9}` });
  })();
  for (const at of [40, 100]) {
    await done.at(at);
    await own.kill();
    await own.start();
  }
  await publishing;
  await done.reached;
  await w.stop();
  const answer = await fetch(`${own.url}/groups/jobs/billing`);
  const { partitions } = (await answer.json()) as { partitions: Array<{ lag: number; dead: number }> };
  assert.deepEqual(
    partitions.map((p) => [p.lag, p.dead]),
    [
      [0, 0],
      [0, 0],
      [0, 0],
    ],
  );
});
