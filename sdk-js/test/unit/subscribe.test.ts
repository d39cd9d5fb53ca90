import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import { history } from "../../src/features/history.js";
import type { Subscription } from "../../src/types.js";
import { webStorage } from "../../src/webstorage.js";
import { gather, type Stage, stage, watch } from "./stage.js";

const numbers = (n: number, from = 0) => Array.from({ length: n }, (_, i) => from + i);
const fill = ({ server }: Stage, n: number, topic = "orders") => {
  for (const value of numbers(n)) server.topic(topic).append({ value });
};
const listen = (sub: Subscription) => {
  const heard: unknown[] = [];
  sub.on("gap", ({ reason, requested, earliest, end }) => heard.push({ reason, requested, earliest, end }));
  sub.on("recovered", ({ recovered }) => heard.push(recovered ? "recovered" : "not recovered"));
  sub.on("caught-up", () => heard.push("caught-up"));
  sub.on("error", (e) => heard.push(e.code));
  return heard;
};

test("a subscription begins at latest, and says where it stands before anything came", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders").append({ value: "before" });
  const sub = client.subscribe("orders");
  const seen = gather(sub);
  assert.equal(sub.state, "subscribing");
  await clock.advance(20);
  assert.equal(sub.state, "live");
  assert.equal(sub.cursor, "c1");
  watch(client.publish("orders", { total: 1 }));
  await clock.advance(20);
  assert.deepEqual(seen.values, [{ total: 1 }]);
});

test("messages have names as the language wants them, and bytes are bytes", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders").append({ key: "k", headers: { a: "b" }, content_type: "image/png", value_base64: "AQI=" });
  const seen = gather(client.subscribe("orders", { from: "earliest" }));
  await clock.advance(20);
  const { timestamp, ...rest } = seen.messages[0]!;
  assert.match(timestamp, /^\d{4}-/);
  assert.deepEqual(rest, {
    topic: "orders",
    partition: 0,
    offset: 0,
    key: "k",
    headers: { a: "b" },
    contentType: "image/png",
    value: new Uint8Array([1, 2]),
  });
});

test("a lost connection resumes exactly after the last message handed out", async (t) => {
  for (let seed = 1; seed <= 20; seed++) {
    const s = stage(t, {}, seed);
    const { clock, server, client } = s;
    server.topic("orders", 3);
    fill(s, 200);
    const sub = client.subscribe("orders", { from: "earliest", credit: 8 });
    const seen = gather(sub);
    const heard = listen(sub);
    for (let i = 0; i < 40; i++) {
      await clock.advance(clock.random() * 8);
      if (clock.random() < 0.3) server.connections.at(-1)?.close();
      if (i % 5 === 0) await clock.advance(2000);
    }
    await clock.advance(60_000);
    assert.deepEqual(
      (seen.values as number[]).toSorted((a, b) => a - b),
      numbers(200),
      `seed ${seed}: once each`,
    );
    for (let p = 0; p < 3; p++) {
      const offsets = seen.messages.filter((m) => m.partition === p).map((m) => m.offset);
      assert.deepEqual(offsets, numbers(offsets.length), `seed ${seed}: in order`);
    }
    assert.ok(heard.includes("recovered") && !heard.includes("not recovered"), `seed ${seed}`);
    assert.equal(heard.at(-1), "caught-up");
  }
});

test("the cursor goes on anywhere exactly behind what was handed out", async (t) => {
  const s = stage(t);
  const { clock, server, client } = s;
  server.topic("orders", 2);
  fill(s, 30);
  const sub = client.subscribe("orders", { from: "earliest" });
  const iterator = sub[Symbol.asyncIterator]();
  const first: unknown[] = [];
  for (let i = 0; i < 11; i++) {
    const next = watch(iterator.next());
    await clock.advance(20);
    first.push(next.value?.value.value);
  }
  const rest = gather(client.subscribe("orders", { from: { cursor: sub.cursor } }));
  await clock.advance(20);
  assert.deepEqual(
    [...first, ...rest.values].toSorted((a, b) => Number(a) - Number(b)),
    numbers(30),
  );
});

test("a slow reader stops the server", async (t) => {
  const s = stage(t);
  fill(s, 100);
  const sub = s.client.subscribe("orders", { from: "earliest", credit: 10 });
  await s.clock.advance(1000);
  const credits = () => s.server.received.filter((f) => f.op === "credit").length;
  assert.equal(credits(), 0);
  const iterator = sub[Symbol.asyncIterator]();
  for (let i = 0; i < 5; i++) await iterator.next();
  await s.clock.advance(20);
  assert.equal(credits(), 1);
});

test("a handler gets one message after the other, and the next once it is done", async (t) => {
  const s = stage(t);
  fill(s, 5);
  const begun: unknown[] = [];
  const ends: Array<() => void> = [];
  const handler = (m: { value: unknown }) => {
    begun.push(m.value);
    return new Promise<void>((resolve) => ends.push(resolve));
  };
  s.client.subscribe("orders", handler, { from: "earliest" });
  await s.clock.advance(20);
  assert.deepEqual(begun, [0]);
  ends[0]!();
  await s.clock.settle();
  assert.deepEqual(begun, [0, 1]);
});

test("a handler that throws ends its subscription before the next message", async (t) => {
  const store = new Map<string, string>();
  const cursors = { get: (n: string) => store.get(n) ?? null, set: (n: string, c: string) => void store.set(n, c) };
  const s = stage(t, { cursors });
  fill(s, 5);
  const got: unknown[] = [];
  const sub = s.client.subscribe(
    "orders",
    (m) => {
      got.push(m.value);
      if (m.value === 2) throw new Error("cannot");
    },
    { from: "earliest", name: "mine" },
  );
  const heard = listen(sub);
  await s.clock.advance(2000);
  assert.deepEqual(got, [0, 1, 2]);
  assert.equal(sub.state, "closed");
  assert.deepEqual(heard.at(-1), "handler");
  const again = gather(s.client.subscribe("orders", { name: "mine" }));
  await s.clock.advance(20);
  assert.deepEqual(again.values, [2, 3, 4], "what failed comes again");
});

test("pause stops the hand-out, resume goes on, seek begins elsewhere", async (t) => {
  const s = stage(t);
  fill(s, 20);
  const sub = s.client.subscribe("orders", { from: "earliest", credit: 4 });
  sub.pause();
  const seen = gather(sub);
  await s.clock.advance(1000);
  assert.deepEqual(seen.values, []);
  assert.equal(sub.state, "paused");
  sub.resume();
  await s.clock.advance(1000);
  assert.deepEqual(seen.values, numbers(20));
  const sought = watch(sub.seek("earliest"));
  await s.clock.advance(1000);
  assert.equal(sought.done, true);
  assert.deepEqual(seen.values, [...numbers(20), ...numbers(20)]);
  assert.equal(s.server.received.filter((f) => f.op === "unsubscribe").length, 1);
});

test("what is no longer kept is a gap, never silence", async (t) => {
  const s = stage(t);
  fill(s, 10);
  const sub = s.client.subscribe("orders", { from: "earliest", credit: 2 });
  const heard = listen(sub);
  const iterator = sub[Symbol.asyncIterator]();
  const first = watch(iterator.next());
  await s.clock.advance(20);
  assert.equal(first.value?.value.value, 0);
  s.server.topic("orders").expire(0, 6);
  s.server.connections.at(-1)!.close();
  await s.clock.advance(1000);
  const seen = gather(sub);
  await s.clock.advance(1000);
  assert.deepEqual(seen.values, [6, 7, 8, 9]);
  const gap = { reason: "expired", requested: "0:1", earliest: "0:6", end: "0:10" };
  assert.deepEqual(
    heard.filter((h) => h !== "caught-up"),
    ["not recovered", gap],
  );
});

test("who hears of a gap may seek", async (t) => {
  const s = stage(t);
  fill(s, 10);
  s.server.topic("orders").expire(0, 6);
  const sub = s.client.subscribe("orders", { from: { cursor: "c2" } });
  sub.on("gap", () => void sub.seek("latest"));
  const seen = gather(sub);
  await s.clock.advance(1000);
  assert.deepEqual(seen.values, []);
  s.server.topic("orders").append({ value: "new" });
  watch(s.client.publish("orders", "newer"));
  await s.clock.advance(1000);
  assert.deepEqual(seen.values, ["new", "newer"]);
});

test("a reader that stands still is not asked about", async (t) => {
  const s = stage(t);
  fill(s, 500);
  let polls = 0;
  const counted: typeof fetch = (...args) => {
    polls++;
    return s.server.fetch(...args);
  };
  const { url, WebSocket } = s.server;
  const client = createClient({ url, WebSocket, clock: s.clock, fetch: counted, use: [history()] });
  client.subscribe("orders", { from: "earliest", credit: 10 });
  await s.clock.advance(60_000);
  assert.equal(polls, 1);
  const closed = watch(client.close());
  await s.clock.advance(20);
  assert.equal(closed.done, true);
});

test("caught-up comes once all that was kept is handed out, not before", async (t) => {
  const s = stage(t);
  fill(s, 50);
  const sub = s.client.subscribe("orders", { from: "earliest", credit: 10 });
  const heard = listen(sub);
  await s.clock.advance(100);
  assert.equal(sub.state, "catching-up");
  assert.deepEqual(heard, []);
  let at = -1;
  const seen = gather(sub);
  sub.on("caught-up", () => {
    at = seen.values.length;
  });
  await s.clock.advance(20_000);
  assert.equal(sub.state, "live");
  assert.deepEqual(heard, ["caught-up"]);
  assert.ok(at >= 49, `${at} of 50 were handed out`);
});

test("named cursors are stored, a second after they moved and at the end", async (t) => {
  const items = new Map<string, string>();
  const storage = {
    getItem: (k: string) => items.get(k) ?? null,
    setItem: (k: string, v: string) => void items.set(k, v),
  };
  const s = stage(t, { cursors: webStorage(storage as Storage) });
  fill(s, 3);
  const sub = s.client.subscribe("orders", { from: "earliest", name: "mine" });
  const seen = gather(sub);
  await s.clock.advance(2000);
  assert.deepEqual([...items.keys()], ["tidewire:mine"]);
  fill(s, 2);
  s.server.connections.at(-1)!.close();
  await s.clock.advance(1000);
  await sub.unsubscribe();
  assert.equal(seen.done, true);
  assert.equal(items.get("tidewire:mine"), "c5");
  const again = gather(s.client.subscribe("orders", { name: "mine" }));
  s.server.topic("orders").append({ value: "new" });
  await s.clock.advance(20);
  assert.deepEqual(again.values, ["new"]);
});

test("leaving the loop, a signal and unsubscribe end it, without an error", async (t) => {
  const s = stage(t);
  fill(s, 3);
  const got: unknown[] = [];
  const loop = async () => {
    for await (const m of s.client.subscribe("orders", { from: "earliest" })) {
      got.push(m.value);
      break;
    }
  };
  const left = watch(loop());
  const control = new AbortController();
  const signalled = gather(s.client.subscribe("orders", { signal: control.signal }));
  await s.clock.advance(20);
  assert.equal(left.done, true);
  assert.deepEqual(got, [0]);
  control.abort();
  await s.clock.advance(20);
  assert.equal(signalled.done, true);
  assert.equal(signalled.error, undefined);
  assert.equal(s.server.received.filter((f) => f.op === "unsubscribe").length, 2);
  assert.equal(gather(s.client.subscribe("orders", { signal: control.signal })).done, false);
  await s.clock.advance(20);
});

test("one that is ended before it began is taken back at the server", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders");
  watch(client.connect());
  await clock.advance(20);
  const sub = client.subscribe("orders");
  const ready = watch(sub.ready());
  await clock.settle();
  void sub.unsubscribe();
  await clock.advance(20);
  assert.equal(ready.error?.code, "closed");
  assert.deepEqual(
    server.received.map((f) => f.op),
    ["hello", "subscribe", "unsubscribe"],
  );
});

test("a topic that is not there, or that is deleted, ends the subscription with an error", async (t) => {
  const { clock, server, client } = stage(t);
  const missing = client.subscribe("nowhere");
  const ready = watch(missing.ready());
  const seen = gather(missing);
  server.topic("orders").append({ value: 1 });
  const orders = client.subscribe("orders", { from: "earliest" });
  const read = gather(orders);
  await clock.advance(20);
  assert.equal(ready.error?.code, "topic-not-found");
  assert.equal(seen.error?.code, "topic-not-found");
  const sub = server.received.findLast((f) => f.op === "subscribe")!;
  server.connections[0]!.send({ op: "error", sub: `s${sub.id}`, code: "leader-unavailable", detail: "", partition: 3 });
  await clock.advance(20);
  assert.equal(orders.state, "live", "other partitions go on");
  server.connections[0]!.send({ op: "error", sub: `s${sub.id}`, code: "topic-not-found", detail: "" });
  await clock.advance(20);
  assert.equal(read.error?.code, "topic-not-found");
  assert.deepEqual(read.values, [1]);
});

test("a refusal of the moment is tried again", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders").append({ value: 1 });
  let refused = 0;
  server.script((f) =>
    f.op === "subscribe" && refused++ < 2
      ? [{ op: "error", id: f.id, code: "draining", detail: "", retry_after: "1s" }]
      : undefined,
  );
  const seen = gather(client.subscribe("orders", { from: "earliest" }));
  await clock.advance(5000);
  assert.deepEqual(seen.values, [1]);
});

test("filters and times are asked for as the wire wants them", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders", 2);
  client.subscribe("orders", { from: new Date(0), keyPrefix: "a", partition: 1, credit: 9 });
  client.subscribe("orders", { keys: ["a", "b"] });
  await clock.advance(20);
  const [first, second] = server.received.filter((f) => f.op === "subscribe");
  assert.deepEqual(
    { ...first, id: 0 },
    {
      op: "subscribe",
      id: 0,
      topic: "orders",
      from: "1970-01-01T00:00:00.000Z",
      key_prefix: "a",
      partition: 1,
      credit: 9,
    },
  );
  assert.deepEqual(
    { ...second, id: 0 },
    { op: "subscribe", id: 0, topic: "orders", from: "latest", keys: ["a", "b"], credit: 256 },
  );
});

test("history reads the log once, from where it is told, and no further than asked", async (t) => {
  const s = stage(t);
  fill(s, 2500);
  const all = gather(s.client.history("orders"));
  const some = gather(s.client.history("orders", { limit: 7 }));
  const none = gather(s.client.history("nowhere"));
  await s.clock.advance(100);
  assert.equal(all.values.length, 2500);
  assert.equal(all.done, true);
  assert.deepEqual(some.values, numbers(7));
  assert.equal(none.error?.code, "topic-not-found");
  assert.equal(none.error?.status, 404);
  assert.equal(s.client.state, "idle", "no connection is needed");
});
