import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import type { Feature } from "../../src/client/feature.js";
import { poll } from "../../src/features/poll.js";
import { sse } from "../../src/features/sse.js";
import { fakeClock, fakeServer } from "../../src/testing/index.js";
import { gather, type Stage, stage, watch } from "./stage.js";

const numbers = (n: number, from = 0) => Array.from({ length: n }, (_, i) => from + i);

/** Lets time pass until something holds, for no longer than a minute. */
async function until({ clock }: Stage, holds: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < 120; i++) {
    if (holds()) return;
    await clock.advance(500);
  }
  assert.fail(`${what} did not come within a minute`);
}

for (const transport of [sse(), poll()]) {
  const { name } = transport.transport!;

  test(`${name} takes over where WebSockets do not open, and gives way when they do`, async (t) => {
    const s = stage(t, { use: [transport] });
    const { clock, server, client } = s;
    const orders = server.topic("orders", 2);
    server.down({ sockets: true });
    const sub = client.subscribe("orders", { from: "earliest" });
    const seen = gather(sub);
    const published = numbers(5).map((i) => watch(client.publish("orders", i, { key: `k${i % 2}` })));
    await until(s, () => seen.values.length === 5, "what was published");
    assert.equal(client.transport, name);
    assert.ok(published.every((p) => p.value));
    assert.equal(sub.state, "live");
    server.down({ sockets: false });
    await clock.advance(61_000);
    assert.equal(client.transport, "websocket");
    for (const i of numbers(5, 5)) watch(client.publish("orders", i));
    await until(s, () => seen.values.length === 10, "the rest");
    assert.deepEqual(new Set(seen.values), new Set(numbers(10)));
    assert.equal(orders.records.length, 10);
  });

  test(`${name} loses nothing and repeats nothing, whatever its connection does`, async (t) => {
    for (let seed = 1; seed <= 5; seed++) {
      const s = stage(t, { use: [transport] }, seed);
      const { clock, server, client } = s;
      const orders = server.topic("orders", 3);
      server.down({ sockets: true });
      const seen = gather(client.subscribe("orders", { from: "earliest", credit: 16 }));
      for (let i = 0; i < 60; i++) {
        watch(client.publish("orders", i, { key: `k${i % 5}` }));
        if (i % 10 === 9) {
          server.down({ http: clock.random() < 0.5, sockets: clock.random() < 0.7 });
          await clock.advance(clock.random() * 5000);
        }
      }
      server.down({ http: false });
      await until(s, () => seen.values.length >= 60, `seed ${seed}: all`);
      assert.deepEqual(
        (seen.values as number[]).toSorted((a, b) => a - b),
        numbers(60),
        `seed ${seed}: once each`,
      );
      assert.equal(orders.records.length, 60, `seed ${seed}: kept once`);
      for (let k = 0; k < 5; k++) {
        const values = orders.records.filter((r) => r.key === `k${k}`).map((r) => Number(r.value));
        assert.deepEqual(
          values,
          values.toSorted((a, b) => a - b),
          `seed ${seed}: the order of k${k}`,
        );
      }
    }
  });

  test(`over ${name} each message that is handed out can be resumed after`, async (t) => {
    const s = stage(t, { use: [transport] });
    const { clock, server, client } = s;
    const orders = server.topic("orders", 3);
    for (const value of numbers(30)) orders.append({ value });
    server.down({ sockets: true });
    const sub = client.subscribe("orders", { from: "earliest" });
    const iterator = sub[Symbol.asyncIterator]();
    const handed: unknown[] = [];
    for (let i = 0; i < 8; i++) {
      const next = watch(iterator.next());
      await until(s, () => next.done, "a message");
      handed.push(next.value!.value.value);
      const rest = gather(client.history("orders", { from: { cursor: sub.cursor } }));
      await clock.advance(10);
      assert.deepEqual(new Set([...handed, ...rest.values]), new Set(numbers(30)));
      assert.equal(handed.length + rest.values.length, 30, "nothing comes twice");
    }
  });

  test(`${name} tells of a gap, of a topic that is not there, and stops for a slow reader`, async (t) => {
    const s = stage(t, { use: [transport] });
    const { clock, server, client } = s;
    const orders = server.topic("orders");
    for (const value of numbers(100)) orders.append({ value });
    orders.expire(0, 40);
    server.down({ sockets: true });
    const missing = gather(client.subscribe("nowhere"));
    const lost = client.subscribe("orders", { from: { cursor: "c0" } });
    const gaps: string[] = [];
    const recovered: boolean[] = [];
    lost.on("gap", (e) => gaps.push(e.reason));
    lost.on("recovered", (e) => recovered.push(e.recovered));
    const seen = gather(lost);
    await until(s, () => seen.values.length === 60, "what is kept");
    assert.deepEqual([gaps, recovered], [["expired"], [false]]);
    assert.equal(missing.error?.code, "topic-not-found");
    await clock.advance(1000);
    assert.deepEqual(seen.values, numbers(60, 40));
  });
}

test("a Retry-After is waited for, and a random part of a second behind it", async (t) => {
  const waits = new Set<number>();
  for (let seed = 1; seed <= 8; seed++) {
    const body = '{"code":"draining","status":503,"detail":"the node is shutting down"}';
    const refuse: typeof fetch = async () => new Response(body, { status: 503, headers: { "Retry-After": "2" } });
    const { clock, server, client } = stage(t, { use: [sse()], fetch: refuse }, seed);
    server.down({ sockets: true });
    client.on("state", ({ reason, retryInMs }) => {
      if (reason?.includes("draining")) waits.add(retryInMs!);
    });
    watch(client.connect());
    await clock.advance(2000);
  }
  assert.ok(waits.size > 4, `${waits.size} of 8 clients come back at times of their own`);
  for (const ms of waits) assert.ok(ms >= 2000 && ms < 3000, `${ms} ms`);
});

test("a stream whose engine takes its time to end leaves no timer behind", async (t) => {
  const fetch: typeof globalThis.fetch = async (input) => {
    if (!String(input).includes("/events")) return Response.json({});
    const first = new TextEncoder().encode("id: c0\n\n");
    return new Response(new ReadableStream({ start: (stream) => stream.enqueue(first) })); // it knows of no signal
  };
  const { clock, server, client } = stage(t, { use: [sse()], fetch });
  server.down({ sockets: true });
  const sub = client.subscribe("orders");
  await clock.advance(5000);
  assert.equal(sub.state, "live");
  await client.close({ drainMs: 0 });
  assert.equal(clock.pending, 0);
});

test("a poll that is refused for the moment ends nothing", async (t) => {
  let polls = 0;
  const refusing: Feature<"transport"> = {
    name: "transport",
    transport: {
      name: "poll",
      open(options, events) {
        const fetch: typeof globalThis.fetch = async (input, init) => {
          const refuse = String(input).includes("/topics/") && ++polls % 3 === 0;
          const headers = { "Retry-After": "1" };
          return refuse ? Response.json({ code: "draining" }, { status: 503, headers }) : options.fetch(input, init);
        };
        return poll().transport!.open({ ...options, fetch }, events);
      },
    },
  };
  const { clock, server, client } = stage(t, { use: [refusing] });
  for (const value of numbers(20)) server.topic("orders").append({ value });
  server.down({ sockets: true });
  const sub = client.subscribe("orders", { from: "earliest", credit: 4 });
  const seen = gather(sub);
  await clock.advance(30_000);
  assert.deepEqual(seen.values, numbers(20));
  assert.notEqual(sub.state, "closed");
  assert.ok(polls > 8);
});

test("a slow reader of polls is given no more than it takes", async (t) => {
  let given = 0;
  const counting: Feature<"transport"> = {
    name: "transport",
    transport: {
      name: "poll",
      open(options, events) {
        const fetch: typeof globalThis.fetch = async (input, init) => {
          const answer = await options.fetch(input, init);
          const { messages = [] } = (await answer.clone().json()) as { messages?: unknown[] };
          given += messages.length;
          return answer;
        };
        return poll().transport!.open({ ...options, fetch }, events);
      },
    },
  };
  const { clock, server, client } = stage(t, { use: [counting] });
  for (const value of numbers(100)) server.topic("orders").append({ value });
  server.down({ sockets: true });
  const sub = client.subscribe("orders", { from: "earliest", credit: 10 });
  await clock.advance(30_000);
  assert.equal(given, 10);
  const seen = gather(sub);
  await clock.advance(30_000);
  assert.deepEqual(seen.values, numbers(100));
});

test("a server that is away altogether is no reason to leave the WebSocket for good", async (t) => {
  const s = stage(t, { use: [sse(), poll()] });
  const { server, client } = s;
  watch(client.connect());
  await until(s, () => client.transport === "websocket", "the WebSocket");
  server.down({ sockets: true, http: true });
  await s.clock.advance(30_000);
  server.down({ sockets: false, http: false });
  await until(s, () => client.state === "connected", "a connection");
  await s.clock.advance(61_000);
  assert.equal(client.transport, "websocket");
});

test("each of several addresses is tried with each transport", async () => {
  for (let seed = 1; seed <= 10; seed++) {
    const clock = fakeClock({ seed });
    const server = fakeServer(clock);
    server.down({ sockets: true });
    const only: typeof fetch = (url, init) =>
      String(url).startsWith("http://b") ? server.fetch(url, init) : Promise.reject(new TypeError("refused"));
    const url = ["http://a", "http://b", "http://c"];
    const { WebSocket } = server;
    const client = createClient({ url, WebSocket, fetch: only, clock, use: [sse()], reconnect: { maxDelayMs: 200 } });
    const connected = watch(client.connect());
    await clock.advance(60_000);
    assert.equal(connected.done, true, `seed ${seed}`);
    const closed = client.close();
    await clock.advance(10);
    await closed;
  }
});

test("keys wait for a WebSocket: nothing else can ask for them", async (t) => {
  const s = stage(t, { use: [poll()] });
  const { server, client } = s;
  const orders = server.topic("orders");
  for (const key of ["a", "b", "c"]) orders.append({ key, value: key });
  server.down({ sockets: true });
  const seen = gather(client.subscribe("orders", { keys: ["a", "c"], from: "earliest" }));
  await until(s, () => client.transport === "poll", "polls");
  await s.clock.advance(10_000);
  assert.deepEqual(seen.values, []);
  server.down({ sockets: false });
  await until(s, () => seen.values.length === 2, "the messages");
  assert.deepEqual(seen.values, ["a", "c"]);
});
