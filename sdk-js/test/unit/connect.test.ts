import assert from "node:assert/strict";
import { test } from "node:test";
import type { ClientEvents, TokenReason } from "../../src/types.js";
import { gather, stage, watch } from "./stage.js";

test("connect resolves once there is a connection, and rejects when its signal says so", async (t) => {
  const { clock, server, client } = stage(t);
  const connected: Array<ClientEvents["connected"]> = [];
  client.on("connected", (e) => connected.push(e));
  const control = new AbortController();
  server.down({ sockets: true });
  const aborted = watch(client.connect({ signal: control.signal }));
  const patient = watch(client.connect());
  await clock.advance(100);
  control.abort(new Error("enough"));
  server.down({ sockets: false });
  await clock.advance(10_000);
  assert.equal(aborted.error?.message, "enough");
  assert.equal(patient.done, true);
  assert.deepEqual(connected, [{ connection: "c1", node: "fake", transport: "websocket" }]);
});

test("eager connects by itself", async (t) => {
  const { clock, client } = stage(t, { connect: "eager" });
  await clock.advance(20);
  assert.equal(client.state, "connected");
});

test("without reconnecting the first loss is the end, and says why", async (t) => {
  const { clock, server, client, states } = stage(t, { reconnect: false });
  server.topic("orders");
  const seen = gather(client.subscribe("orders"));
  await clock.advance(20);
  server.connections[0]!.close(1012, "the node restarts");
  await clock.advance(20);
  assert.deepEqual(states, ["connecting", "connected", "failed"]);
  assert.equal(seen.error?.code, "network");
  await assert.rejects(client.publish("orders", 1), { code: "network" });
  assert.throws(() => client.subscribe("orders"), { code: "network" });
  const again = watch(client.connect());
  await clock.advance(20);
  assert.equal(again.done, true);
});

test("a drain is waited out as the server says", async (t) => {
  const { clock, server, client } = stage(t);
  watch(client.connect());
  await clock.advance(20);
  server.connections[0]!.send({ op: "closing", reason: "draining", retry_after: "3.5s" });
  await clock.advance(20);
  server.connections[0]!.close(1012, "the node restarts");
  await clock.advance(3500);
  assert.equal(server.dialled.length, 1);
  await clock.advance(20);
  assert.equal(server.dialled.length, 2);
  assert.equal(client.state, "connected");
});

test("the token is asked for once, kept while it lasts, and renewed before it ends", async (t) => {
  const asked: TokenReason[] = [];
  let pending = 0;
  const clockOf = { now: () => 0 };
  const { clock, server, client } = stage(t, {
    auth: async ({ reason }) => {
      asked.push(reason);
      assert.equal(++pending, 1, "never twice at once");
      await Promise.resolve();
      pending--;
      return { token: `t${asked.length}`, expiresAt: clockOf.now() + 100_000 };
    },
  });
  clockOf.now = clock.now;
  server.topic("orders");
  watch(client.connect());
  gather(client.history("orders"));
  await clock.advance(20);
  assert.deepEqual(asked, ["initial"]);
  assert.equal(server.connections[0]!.token, "t1");
  server.connections[0]!.close();
  await clock.advance(10_000);
  assert.deepEqual(asked, ["initial"], "a reconnect keeps it");
  await clock.advance(80_000);
  assert.deepEqual(asked, ["initial", "expiring"]);
  assert.equal(server.connections[1]!.token, "t2", "the live connection has the new one");
  assert.equal(server.connections.length, 2);
});

test("an expired token is renewed, one that is refused is the end", async (t) => {
  const asked: TokenReason[] = [];
  const { clock, server, client } = stage(t, {
    auth: async ({ reason }) => {
      asked.push(reason);
      return `t${asked.length}`;
    },
  });
  server.admit((token) => (token === "t1" ? "expired" : "ok"));
  watch(client.connect());
  await clock.advance(10_000);
  assert.deepEqual(asked, ["initial", "unauthorized"]);
  assert.equal(client.state, "connected");
  server.connections.at(-1)!.close(4003, "the token has expired");
  await clock.advance(10_000);
  assert.deepEqual(asked, ["initial", "unauthorized", "unauthorized"]);
  assert.equal(client.state, "connected");

  const fixed = stage(t, { auth: "t1" });
  fixed.server.admit(() => "bad");
  const failed = watch(fixed.client.connect());
  await fixed.clock.advance(10_000);
  assert.equal(failed.error?.code, "unauthorized");
  assert.equal(fixed.client.state, "failed");
});

test("a callback that gives what is over already is not asked without end", async (t) => {
  let asked = 0;
  const { clock, client } = stage(t, {
    auth: async () => {
      asked++;
      return { token: "t", expiresAt: 0 };
    },
  });
  watch(client.connect());
  await clock.advance(60_000);
  assert.ok(asked > 10 && asked <= 70, `${asked} times in a minute`);
});

test("a callback that fails is asked again no sooner than the backoff says", async (t) => {
  let asked = 0;
  const { clock, client } = stage(t, {
    auth: async () => {
      asked++;
      throw new Error("no session");
    },
  });
  const errors: string[] = [];
  client.on("error", (e) => errors.push(e.code));
  watch(client.connect());
  await clock.advance(60_000);
  assert.ok(asked > 4 && asked < 20, `${asked} times in a minute`);
  assert.deepEqual(new Set(errors), new Set(["unauthorized"]));
});

test("a node that says nothing is left", async (t) => {
  const { clock, server, client } = stage(t);
  watch(client.connect());
  await clock.advance(20);
  await clock.advance(120_000);
  assert.equal(server.connections.length, 1, "it answers signs of life");
  server.script((f) => (f.op === "hello" && server.connections.length === 1 ? "silence" : undefined));
  await clock.advance(40_000);
  assert.equal(server.connections.length, 2);
  assert.equal(client.state, "connected");
});

test("several addresses are tried one after the other", async (t) => {
  const { clock, server, client } = stage(t, { url: ["http://a", "wss://b/"] });
  server.down({ sockets: true });
  watch(client.connect());
  await clock.advance(1500);
  const [first, second, third] = server.dialled;
  assert.deepEqual(new Set([first, second]), new Set(["ws://a/ws", "wss://b/ws"]));
  assert.equal(third, first);
});

test("a page that is looked at again does not wait out its delay", async (t) => {
  const wakes = new Map<string, () => void>();
  const add = (name: string, fn: () => void, { signal }: { signal: AbortSignal }) => {
    wakes.set(name, fn);
    signal.addEventListener("abort", () => wakes.delete(name));
  };
  Object.assign(globalThis, { addEventListener: add });
  t.after(() => {
    assert.equal(wakes.size, 0, "the client lets go of the page");
    Reflect.deleteProperty(globalThis, "addEventListener");
  });
  const { clock, server, client } = stage(t, { reconnect: { minDelayMs: 60_000, maxDelayMs: 60_000 } });
  watch(client.connect());
  await clock.advance(20);
  server.connections[0]!.close();
  await clock.advance(20);
  assert.equal(client.state, "reconnecting");
  wakes.get("online")!();
  await clock.advance(20);
  assert.equal(client.state, "connected");
  server.script((f) => (f.op === "hello" && server.dialled.length === 2 ? "silence" : undefined));
  wakes.get("pageshow")!(); // the machine slept, and the line is dead
  await clock.advance(10_100);
  assert.equal(client.state, "reconnecting");
  const closed = watch(client.close());
  await clock.advance(20);
  assert.equal(closed.done, true);
});

test("after long without a connection it is suspended, and says what is recovered when it is back", async (t) => {
  const { clock, server, client, states } = stage(t);
  server.topic("orders");
  const sub = client.subscribe("orders");
  const recovered: boolean[] = [];
  sub.on("recovered", (e) => recovered.push(e.recovered));
  await clock.advance(20);
  server.down({ sockets: true });
  await clock.advance(180_000);
  assert.equal(client.state, "suspended");
  server.down({ sockets: false });
  await clock.advance(30_000);
  assert.deepEqual(states, ["connecting", "connected", "reconnecting", "suspended", "connected"]);
  assert.deepEqual(recovered, [true]);
});

test("close ends everything, once", async (t) => {
  const { clock, server, client, states } = stage(t);
  server.topic("orders");
  const seen = gather(client.subscribe("orders"));
  await clock.advance(20);
  const closed = watch(Promise.all([client.close(), client.close()]));
  await clock.advance(20);
  assert.equal(closed.done, true);
  assert.equal(seen.done && !seen.error, true);
  assert.equal(server.connections[0]!.open, false);
  assert.deepEqual(states.at(-1), "closed");
  assert.throws(() => client.subscribe("orders"), { code: "closed" });
  await assert.rejects(client.connect(), { code: "closed" });
});
