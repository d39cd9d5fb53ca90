import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import type { Feature } from "../../src/client/feature.js";
import { poll } from "../../src/features/poll.js";
import { sse } from "../../src/features/sse.js";
import { gather, stage, watch } from "./stage.js";

const response = (body: string, type = "application/json") => new Response(body, { headers: { "Content-Type": type } });
const message = (offset: number) =>
  JSON.stringify({
    topic: "orders",
    partition: 0,
    offset,
    timestamp: "",
    key: null,
    content_type: "",
    headers: {},
    value: offset,
  });

test("a store that fails is told of, and ends nothing", async (t) => {
  const cursors = {
    get: () => null,
    set: () => {
      throw new Error("quota exceeded");
    },
  };
  const { clock, server, client } = stage(t, { cursors });
  server.topic("orders").append({ value: 1 });
  const sub = client.subscribe("orders", { from: "earliest", name: "mine" });
  const errors: string[] = [];
  sub.on("error", (e) => errors.push(e.message));
  const seen = gather(sub);
  await clock.advance(2000);
  assert.deepEqual(seen.values, [1]);
  assert.deepEqual(errors, ["handler: quota exceeded"]);
  assert.equal(sub.state, "live");
});

test("a cursor that cannot be read ends its subscription: nothing is skipped in silence", async (t) => {
  const cursors = { get: () => Promise.reject(new Error("locked")), set: () => {} };
  const { clock, server, client } = stage(t, { cursors });
  server.topic("orders");
  const seen = gather(client.subscribe("orders", { name: "mine" }));
  await clock.advance(20);
  assert.equal(seen.error?.message, "handler: locked");
});

test("over sse a partition that is damaged is told of, and the others go on", async (t) => {
  const problem = JSON.stringify({ code: "leader-unavailable", detail: "damaged", partition: 3 });
  const stream = `id: c0\n\nevent: error\ndata: ${problem}\n\nevent: message\nid: c1\ndata: ${message(0)}\n\n`;
  let calls = 0;
  const fetch = async (input: unknown) => {
    if (String(input).includes("readyz")) return response("{}");
    return calls++ ? new Promise<Response>(() => {}) : response(stream, "text/event-stream");
  };
  const { clock, server, client } = stage(t, { use: [sse()], fetch: fetch as typeof globalThis.fetch });
  server.down({ sockets: true });
  const sub = client.subscribe("orders");
  const errors: string[] = [];
  sub.on("error", (e) => errors.push(e.code));
  const seen = gather(sub);
  await clock.advance(5000);
  assert.deepEqual(errors, ["leader-unavailable"]);
  assert.deepEqual(seen.values, [0]);
  assert.notEqual(sub.state, "closed");
});

test("a stream of which nothing comes gives way to polls: a proxy may hold it back", async (t) => {
  const { clock, server, client } = stage(t, { use: [heldBack, poll()] });
  server.topic("orders").append({ value: 1 });
  server.down({ sockets: true });
  const seen = gather(client.subscribe("orders", { from: "earliest" }));
  await clock.advance(30_000);
  assert.equal(client.transport, "poll");
  assert.deepEqual(seen.values, [1]);
});

/** Server-sent events through a proxy that waits for their end. */
const heldBack: Feature<"transport"> = {
  name: "transport",
  transport: {
    name: "sse",
    open(options, events) {
      const fetch: typeof globalThis.fetch = (input, init) =>
        String(input).includes("/events")
          ? Promise.resolve(new Response(new ReadableStream()))
          : options.fetch(input, init);
      return sse().transport!.open({ ...options, fetch }, events);
    },
  },
};

test("a client that is closed ends what it reads, and leaves no timer", async (t) => {
  const never: typeof fetch = (_, init) =>
    new Promise((_, reject) => init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason)));
  const { clock, server, client } = stage(t, { fetch: never });
  server.topic("orders");
  client.subscribe("orders", () => {}, { from: "earliest" }); // it asks when it has caught up
  const read = gather(client.history("orders"));
  await clock.advance(50);
  void client.close();
  await clock.advance(50);
  assert.equal(read.error!.code, "closed");
  assert.equal(clock.pending, 0);
});

for (const transport of [sse(), poll()]) {
  const { name } = transport.transport!;
  test(`over ${name} a call that nobody answers any more is made again, and its record is kept once`, async (t) => {
    const s = stage(t, { use: [silencing(transport, /orders/)] });
    const orders = s.server.topic("orders");
    s.server.topic("others");
    s.server.down({ sockets: true });
    // What another subscription hears all the time says nothing of this call.
    const others = gather(s.client.subscribe("others"));
    const seen = gather(s.client.subscribe("orders", { from: "earliest" }));
    const published = watch(s.client.publish("orders", 1, { timeoutMs: 600_000 }));
    for (let i = 0; i < 100; i++) {
      void s.client.publish("others", i);
      await s.clock.advance(2000);
    }
    assert.equal(published.value!.offset, 0);
    assert.equal(orders.records.length, 1);
    assert.deepEqual(seen.values, [1]);
    assert.equal(others.values.length, 100);
  });
}

/** The first call of each kind that fits arrives, and its answer does not. */
function silencing(transport: Feature<"transport">, fits: RegExp): Feature<"transport"> {
  const { name, open } = transport.transport!;
  const silenced = new Set<string>();
  return {
    name: "transport",
    transport: {
      name,
      open(options, events) {
        const fetch: typeof globalThis.fetch = async (input, init) => {
          const kind = `${init?.method} ${String(input).replace(/\?.*/, "")}`;
          const answer = await options.fetch(input, init);
          if (!fits.test(kind) || kind.includes("metadata") || silenced.has(kind)) return answer;
          silenced.add(kind);
          await answer.body?.cancel();
          return new Promise((_, reject) =>
            init!.signal!.addEventListener("abort", () => reject(init!.signal!.reason)),
          );
        };
        return open({ ...options, fetch }, events);
      },
    },
  };
}

for (const transport of [sse(), poll()]) {
  const { name } = transport.transport!;
  test(`over ${name} a callback that once has no token for a call is no end`, async (t) => {
    let fails = false;
    const auth = async () => {
      if (fails) throw new Error("no token just now");
      return { token: "t", expiresAt: clock.now() + 1000 };
    };
    const { clock, server, client } = stage(t, { use: [transport], auth, WebSocket: null as never });
    server.topic("orders");
    const seen = gather(client.subscribe("orders", { from: "earliest" }));
    await clock.advance(50);
    fails = true;
    await clock.advance(3000);
    const published = watch(client.publish("orders", 1));
    await clock.advance(50);
    fails = false;
    await clock.advance(30_000);
    assert.equal(published.value?.offset, 0);
    assert.deepEqual(seen.values, [1]);
    assert.equal(client.state, "connected");
  });
}

test("without a WebSocket the next transport is used, and without any that is said at once", async (t) => {
  const none = null as unknown as typeof WebSocket;
  assert.throws(() => createClient({ url: "http://fake", WebSocket: none }), TypeError);
  const { clock, server, client } = stage(t, { use: [poll()], WebSocket: none });
  server.topic("orders");
  const published = watch(client.publish("orders", 1));
  await clock.advance(50);
  assert.equal(client.transport, "poll");
  assert.equal(published.value?.offset, 0);
});

test("an address that is none is told of", async (t) => {
  class Picky {
    constructor(url: string) {
      throw new SyntaxError(`${url} is no address`);
    }
  }
  const { clock, client } = stage(t, { WebSocket: Picky as unknown as typeof WebSocket, reconnect: false });
  const connected = watch(client.connect());
  await clock.advance(50);
  assert.equal(connected.error?.code, "network");
  assert.match(connected.error!.message, /is no address/);
});

test("history that could not read a partition says so", async (t) => {
  const problem = { code: "leader-unavailable", detail: "damaged" };
  const page = { messages: [JSON.parse(message(0))], cursor: "c", end: true, unavailable: [{ partition: 3, problem }] };
  const { clock, client } = stage(t, { fetch: async () => response(JSON.stringify(page)) });
  const seen = gather(client.history("orders"));
  await clock.settle();
  assert.deepEqual(seen.values, [0]);
  assert.equal(seen.error?.code, "leader-unavailable");
});

test("a listener that throws stops nothing", async (t) => {
  const { clock, server, client } = stage(t);
  server.topic("orders");
  const thrown: string[] = [];
  const hear = (e: Error) => void thrown.push(e.message);
  const others = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  process.on("uncaughtException", hear);
  client.on("connected", () => {
    throw new Error("mine");
  });
  const published = watch(client.publish("orders", 1));
  await clock.advance(20);
  process.off("uncaughtException", hear);
  for (const other of others) process.on("uncaughtException", other);
  assert.equal(published.value?.offset, 0);
  assert.deepEqual(thrown, ["mine"]);
});
