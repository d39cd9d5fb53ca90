import assert from "node:assert/strict";
import { test } from "node:test";
import type { ServerFrame } from "../../src/protocol/frames.js";
import { stage, watch } from "./stage.js";

const values = (records: Array<{ value?: unknown }>) => records.map((r) => r.value);
const error = (id: number, code: string, more: Partial<ServerFrame> = {}): ServerFrame[] => [
  { op: "error", id, code, detail: "", ...more },
];

test("a client connects on first use, and a publish says where it is", async (t) => {
  const { clock, server, client, states } = stage(t);
  const orders = server.topic("orders", 4);
  assert.equal(client.state, "idle");
  const published = watch(client.publish("orders", { total: 12 }, { key: "alice", headers: { trace: "7f" } }));
  await clock.advance(20);
  assert.deepEqual(published.value, {
    topic: "orders",
    partition: 1,
    offset: 0,
    timestamp: orders.records[0]!.timestamp,
    duplicate: false,
  });
  assert.deepEqual(orders.records[0]!.headers, { trace: "7f" });
  assert.deepEqual(states, ["connecting", "connected"]);
  assert.equal(client.transport, "websocket");
});

test("records that wait for a connection are kept in their order, a batch in one frame", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders", 4);
  const all = watch(
    client.publishBatch(
      "orders",
      Array.from({ length: 50 }, (_, value) => ({ value, key: "k" })),
    ),
  );
  await clock.advance(20);
  assert.equal(all.value?.length, 50);
  assert.deepEqual(
    values(orders.records),
    Array.from({ length: 50 }, (_, i) => i),
  );
});

test("records without a key are spread", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders", 4);
  client.publishBatch(
    "orders",
    Array.from({ length: 8 }, (_, value) => ({ value })),
  );
  await clock.advance(20);
  assert.deepEqual(new Set(orders.records.map((r) => r.partition)), new Set([0, 1, 2, 3]));
});

test("an answer that is lost makes a repeat with the same sequence, which says duplicate", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  server.script((frame) => (frame.op === "publish" ? "unanswered" : undefined));
  const published = watch(client.publish("orders", 1));
  await clock.advance(10);
  server.script();
  await clock.advance(1000);
  assert.equal(published.value?.duplicate, true);
  assert.equal(published.value?.offset, 0);
  assert.equal(orders.records.length, 1);
});

test("whatever the connection does, records are kept once and in the order of their keys", async (t) => {
  for (let seed = 1; seed <= 20; seed++) {
    const { clock, server, client } = stage(t, {}, seed);
    const topic = server.topic("orders", 3);
    server.script((frame) => {
      if (frame.op !== "publish") return undefined;
      const luck = clock.random();
      if (luck < 0.002) return "lost";
      if (luck < 0.004) return "unanswered";
      if (luck < 0.02)
        return error(frame.id, luck < 0.01 ? "throttled" : "leader-unavailable", { retry_after: "20ms" });
      return undefined;
    });
    const seen = [];
    for (let i = 0; i < 300; i++) {
      seen.push(watch(client.publish("orders", i, { key: `k${i % 7}` })));
      if (i % 25 === 0) await clock.advance(5);
    }
    await clock.advance(60_000);
    assert.deepEqual(
      seen.filter((s) => !s.value).map((s) => s.error?.message),
      [],
      `seed ${seed}: all are kept`,
    );
    assert.equal(topic.records.length, 300, `seed ${seed}: once each`);
    for (let k = 0; k < 7; k++) {
      const ofKey = values(topic.records.filter((r) => r.key === `k${k}`)) as number[];
      assert.deepEqual(
        ofKey,
        ofKey.toSorted((a, b) => a - b),
        `seed ${seed}: the order of k${k}`,
      );
    }
  }
});

test("a refusal for good rejects its record alone", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  server.script((frame) =>
    frame.op === "publish" && frame.value === 1
      ? error(frame.id, "forbidden", { detail: "no right to publish" })
      : undefined,
  );
  const seen = [0, 1, 2].map((i) => watch(client.publish("orders", i)));
  await clock.advance(1000);
  assert.deepEqual(values(orders.records), [0, 2]);
  assert.equal(seen[1]!.error?.code, "forbidden");
  assert.equal(seen[1]!.error?.retryable, false);
  assert.equal(seen[1]!.error?.problem?.detail, "no right to publish");
  assert.ok(seen[0]!.value && seen[2]!.value);
});

test("a topic that is not there rejects; one that is made later takes records", async (t) => {
  const { clock, server, client } = stage(t);
  const early = watch(client.publish("orders", 1));
  await clock.advance(20);
  assert.equal(early.error?.code, "topic-not-found");
  server.topic("orders");
  const later = watch(client.publish("orders", 2));
  await clock.advance(20);
  assert.equal(later.value?.offset, 0);
});

test("a producer that the server has forgotten goes on as another", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  client.publish("orders", 1);
  await clock.advance(20);
  let refused = 0;
  server.script((frame) =>
    frame.op === "publish" && frame.sequence! > 0 && refused++ < 1 ? error(frame.id, "unknown-producer") : undefined,
  );
  const next = watch(client.publish("orders", 2));
  await clock.advance(1000);
  assert.equal(next.value?.offset, 1);
  assert.equal(orders.records.length, 2);
});

test("a layout that has changed is asked for again", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders", 4);
  client.publish("orders", 0, { key: "alice" });
  await clock.advance(20);
  let refused = 0;
  server.script((frame) => (frame.op === "publish" && refused++ < 1 ? error(frame.id, "wrong-partition") : undefined));
  const next = watch(client.publish("orders", 1, { key: "alice" }));
  await clock.advance(1000);
  assert.equal(next.value?.offset, 1);
  assert.equal(server.received.filter((f) => f.op === "metadata").length, 2);
});

test("a layout that goes on not to fit is asked for at a pace", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders", 2);
  let refused = 0;
  server.script((frame) =>
    frame.op === "publish" && frame.partition === 1 && ++refused ? error(frame.id, "wrong-partition") : undefined,
  );
  const misplaced = watch(client.publish("orders", 1, { key: "a" }));
  const others = ["a", "b", "c", "d", "e", "f"].map((key) => watch(client.publish("orders", 1, { key })));
  await clock.advance(60_000);
  assert.ok(refused > 1 && refused < 300, `${refused} times in a minute`);
  server.script();
  await clock.advance(10_000);
  assert.ok([misplaced, ...others].every((p) => p.value));
});

test("what is mapped anew has numbers of its own, beside what comes meanwhile", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  let refused = 0;
  server.script((frame) =>
    frame.op === "publish" && refused++ < 1 ? error(frame.id, "partition-sealed", { retry_after: "1s" }) : undefined,
  );
  const early = watch(client.publish("orders", 1));
  await clock.advance(500);
  const late = watch(client.publish("orders", 2));
  await clock.advance(1000);
  assert.deepEqual(values(orders.records), [1, 2]);
  assert.deepEqual([early.value?.duplicate, late.value?.duplicate], [false, false]);
});

test("a publish that nobody answers ends as unknown, one that never left as timeout", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders");
  server.script((frame) => (frame.op === "publish" ? "silence" : undefined));
  const sent = watch(client.publish("orders", 1, { timeoutMs: 500 }));
  await clock.advance(500);
  assert.equal(sent.error?.code, "unknown-outcome");
  server.script();
  server.down({ sockets: true });
  await clock.advance(10);
  const never = watch(client.publish("orders", 2, { timeoutMs: 500 }));
  await clock.advance(500);
  assert.equal(never.error?.code, "timeout");
  server.down({ sockets: false });
  await clock.advance(60_000);
  assert.deepEqual(
    values(server.topic("orders").records),
    [1],
    "what may be kept is settled, what timed out is not sent",
  );
});

test("an aborted publish rejects with the reason of its signal, and does not go", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  const control = new AbortController();
  const published = watch(client.publish("orders", 1, { signal: control.signal }));
  control.abort(new Error("changed my mind"));
  await clock.advance(1000);
  assert.equal(published.error?.message, "changed my mind");
  assert.equal(orders.records.length, 0);
  await assert.rejects(client.publish("orders", 1, { signal: control.signal }), /changed my mind/);
});

test("what waits for a connection is bounded, or refused at once", async (t) => {
  const { clock, server, client } = stage(t, { offline: { mode: "buffer", max: 2 } });
  server.topic("orders");
  server.down({ sockets: true });
  const seen = [1, 2, 3].map((i) => watch(client.publish("orders", i)));
  await clock.advance(1000);
  assert.deepEqual(
    seen.map((s) => s.error?.code),
    [undefined, undefined, "offline"],
  );
});

test("in reject mode the first connection is waited for, a lost one is not", async (t) => {
  const { clock, server, client } = stage(t, { offline: { mode: "reject" } });
  server.topic("orders");
  const first = watch(client.publish("orders", 1));
  await clock.advance(20);
  assert.ok(first.value);
  server.down({ sockets: true });
  await clock.advance(20);
  const second = watch(client.publish("orders", 2));
  await clock.advance(0);
  assert.equal(second.error?.code, "offline");
});

test("acks none goes once and has no offset to wait for", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders");
  const kept = watch(client.publish("orders", 1, { acks: "none" }));
  await clock.advance(20);
  assert.equal(kept.done, true);
  const frame = server.received.find((f) => f.op === "publish")!;
  assert.equal(frame.op === "publish" && frame.producer, undefined);
  assert.equal(frame.op === "publish" && frame.sequence, undefined);
  server.script((f) => (f.op === "publish" ? "unanswered" : undefined));
  const lost = watch(client.publish("orders", 2, { acks: "none" }));
  await clock.advance(20);
  assert.equal(lost.error?.code, "unknown-outcome");
});

test("a value is kept as it was when publish was called", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  const value = { total: 1 };
  client.publish("orders", value);
  value.total = 2;
  await clock.advance(20);
  assert.deepEqual(orders.records[0]!.value, { total: 1 });
  await assert.rejects(client.publish("orders", undefined), TypeError);
});

test("close waits for what is being published, and for no longer than it was told", async (t) => {
  const { clock, server, client } = stage(t);
  const orders = server.topic("orders");
  const kept = watch(client.publish("orders", 1));
  const closed = watch(client.close());
  await clock.advance(20);
  assert.equal(kept.value?.offset, 0);
  assert.equal(closed.done, true);
  assert.equal(orders.records.length, 1);
  await assert.rejects(client.publish("orders", 2), { code: "closed" });

  const other = stage(t);
  other.server.topic("orders");
  other.server.script((f) => (f.op === "publish" ? "silence" : undefined));
  const sent = watch(other.client.publish("orders", 1));
  await other.clock.advance(20);
  const waiting = watch(other.client.publish("nowhere", 1));
  const done = watch(other.client.close({ drainMs: 300 }));
  await other.clock.advance(299);
  assert.equal(done.done, false);
  await other.clock.advance(1);
  assert.equal(done.done, true);
  assert.equal(sent.error?.code, "unknown-outcome");
  assert.equal(waiting.error?.code, "topic-not-found");
});
