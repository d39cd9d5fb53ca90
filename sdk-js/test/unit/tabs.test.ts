import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createClient } from "../../src/client/client.js";
import { sharedTabs } from "../../src/features/tabs.js";
import { worker } from "../../src/features/worker.js";
import { fakeClock, fakeServer } from "../../src/testing/index.js";
import type { ClientOptions } from "../../src/types.js";
import { type FakeTab, fakeBrowser } from "./fakebrowser.js";
import { gather, watch } from "./stage.js";

/** Tabs of one browser, each with a client, and the server that they call. */
function stage(t: TestContext) {
  const clock = fakeClock();
  const server = fakeServer(clock);
  const browser = fakeBrowser(clock);
  const orders = server.topic("orders", 2);
  const all: Array<{ tab: FakeTab; client: { close(): Promise<void> } }> = [];
  const open = (options: Partial<ClientOptions> = {}, given: Partial<FakeTab> = {}) => {
    const tab = Object.assign(browser.tab(), given);
    const client = createClient({
      url: server.url,
      WebSocket: tab.socket(server.WebSocket),
      clock: tab.clock,
      reconnect: { minDelayMs: 10, maxDelayMs: 100 },
      ...options,
      use: [sharedTabs(tab), worker()],
    });
    all.push({ tab, client });
    return { client, tab };
  };
  t.after(async () => {
    for (const { tab, client } of all) {
      if (tab.dead) continue;
      const closed = watch(client.close());
      await clock.advance(20_000);
      assert.equal(closed.done, true);
    }
    if (!all.some(({ tab }) => tab.dead)) assert.equal(clock.pending, 0, "a timer is left");
    assert.equal(connections(), 0, "a connection is left");
  });
  const connections = () => server.connections.filter((c) => c.open).length;
  const publishMany = (client: ReturnType<typeof open>["client"], from: number, n: number) =>
    Promise.all(Array.from({ length: n }, (_, i) => client.publish("orders", from + i, { key: "k" })));
  const values = () => orders.records.map((m) => m.value);
  return { clock, server, orders, open, connections, publishMany, values };
}

const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);

test("two tabs have one connection, and each its own answers and messages", async (t) => {
  const { clock, server, open, connections } = stage(t);
  const [a, b] = [open().client, open().client];
  const heard = [gather(a.subscribe("orders", { key: "a" })), gather(b.subscribe("orders", { key: "b" }))];
  await clock.advance(100);
  assert.equal(connections(), 1);
  assert.equal(server.dialled.length, 1);
  const sent = [a, b].flatMap((client, i) => upTo(20).map((n) => client.publish("orders", n, { key: "ab"[i]! })));
  const refused = watch(b.publish("nowhere", 1));
  await clock.advance(100);
  assert.equal((await Promise.all(sent)).length, 40);
  assert.equal(refused.error!.code, "topic-not-found");
  assert.deepEqual(
    heard.map((h) => h.values),
    [upTo(20), upTo(20)],
  );
  assert.equal(connections(), 1);
});

test("tabs that connect at once share the connection too", async (t) => {
  const { clock, open, connections } = stage(t);
  const [a, b] = [open({ connect: "eager" }).client, open({ connect: "eager" }).client];
  await clock.advance(100);
  assert.deepEqual([a.state, b.state, connections()], ["connected", "connected", 1]);
});

test("the leading tab is gone: another goes on, nothing is missing or doubled", async (t) => {
  const { clock, server, orders, open, connections, publishMany, values } = stage(t);
  const [first, second, third] = [open(), open(), open()];
  void first.client.connect();
  await clock.advance(50);
  const heard = [second, third].map(({ client }) => gather(client.subscribe("orders", { key: "k" })));
  await clock.advance(50);
  const sent = [publishMany(second.client, 0, 10)];
  await clock.advance(2); // under way
  first.tab.die();
  orders.append({ key: "k", value: "meanwhile" });
  sent.push(publishMany(second.client, 10, 10));
  await clock.advance(500);
  assert.equal((await Promise.all(sent)).flat().length, 20);
  assert.deepEqual(
    values().filter((v) => v !== "meanwhile"),
    upTo(20),
    "once and in order",
  );
  for (const { values: seen } of heard) assert.deepEqual(seen, values());
  assert.equal(connections(), 1);
  assert.equal(server.dialled.length, 2);
});

test("the leading client is closed: another goes on at once, and a new tab joins it", async (t) => {
  const { clock, open, connections, publishMany } = stage(t);
  const [first, second] = [open(), open()];
  void first.client.connect();
  await clock.advance(50);
  const heard = gather(second.client.subscribe("orders", { key: "k" }));
  await clock.advance(50);
  const states: string[] = [];
  second.client.on("state", (e) => states.push(e.state));
  const closed = watch(first.client.close());
  await clock.advance(100);
  assert.equal(closed.done, true);
  assert.deepEqual(states, ["reconnecting", "connected"]);
  const third = open();
  void publishMany(third.client, 0, 3);
  await clock.advance(100);
  assert.deepEqual(heard.values, [0, 1, 2]);
  assert.equal(connections(), 1);
});

test("a tab that is gone leaves nothing behind on the connection of the others", async (t) => {
  const { clock, server, open, connections } = stage(t);
  server.script(({ op, id }) =>
    op === "join" ? [{ op: "joined", id, sub: "g1", member: "m", partitions: [0] }] : undefined,
  );
  const [first, second] = [open(), open()];
  gather(first.client.subscribe("orders", { key: "a" }));
  await clock.advance(50);
  gather(second.client.subscribe("orders", { key: "b" }));
  second.client.worker("billing", "orders", () => {});
  await clock.advance(50);
  second.tab.die();
  await clock.advance(50);
  const ops = server.received.map((f) => f.op);
  assert.equal(ops.filter((op) => op === "unsubscribe").length, 1);
  assert.equal(ops.filter((op) => op === "leave").length, 1);
  assert.equal(connections(), 1);
  assert.equal(first.client.state, "connected");
});

test("a tab that ends while it subscribes has that ended too", async (t) => {
  const { clock, server, open } = stage(t);
  const [first, second] = [open(), open()];
  void first.client.connect();
  void second.client.connect();
  await clock.advance(50);
  gather(second.client.subscribe("orders"));
  await clock.advance(3); // it is on its way
  second.tab.die();
  await clock.advance(100);
  const subscribed = server.received.filter((f) => f.op === "subscribe").length;
  assert.equal(server.received.filter((f) => f.op === "unsubscribe").length, subscribed);
});

test("the connection is lost: all tabs come back over one", async (t) => {
  const { clock, server, orders, open, connections } = stage(t);
  const tabs = upTo(4).map(() => open());
  const heard = tabs.map(({ client }) => gather(client.subscribe("orders", { key: "k" })));
  await clock.advance(100);
  for (let n = 0; n < 3; n++) {
    server.connections.find((c) => c.open)!.close();
    orders.append({ key: "k", value: n });
    await clock.advance(1000);
    assert.equal(connections(), 1);
  }
  for (const { values } of heard) assert.deepEqual(values, [0, 1, 2]);
  assert.equal(server.dialled.length, 4);
});

test("a leading tab that is frozen loses the lead to one that opens, and follows when it thaws", async (t) => {
  const { clock, open, connections, publishMany } = stage(t);
  const first = open();
  const heard = [gather(first.client.subscribe("orders", { key: "k" }))];
  await clock.advance(50);
  first.tab.freeze();
  const second = open();
  heard.push(gather(second.client.subscribe("orders", { key: "k" })));
  await clock.advance(3900);
  assert.equal(second.client.state, "connecting");
  await clock.advance(500);
  assert.equal(second.client.state, "connected");
  void publishMany(second.client, 1, 1);
  await clock.advance(50);
  assert.deepEqual(heard[1]!.values, [1]);
  first.tab.thaw();
  await clock.advance(1000);
  void publishMany(first.client, 2, 1);
  await clock.advance(50);
  assert.deepEqual(
    heard.map((h) => h.values),
    [
      [1, 2],
      [1, 2],
    ],
  );
  assert.equal(connections(), 1);
});

test("a leading tab that hears others and nothing of the node loses the lead", async (t) => {
  const { clock, server, open, connections } = stage(t);
  const [first, second] = [open(), open()];
  void first.client.connect();
  await clock.advance(50);
  server.script((_, connection) => (connection === server.connections[0] ? "silence" : undefined));
  const connected = watch(second.client.connect());
  await clock.advance(3900);
  assert.equal(connected.done, false);
  await clock.advance(500);
  assert.equal(connected.done, true);
  assert.equal(connections(), 1);
});

test("a leading tab that never gets to connect loses the lead", async (t) => {
  const { clock, server, open, connections } = stage(t);
  const [first, second] = [open(), open()];
  server.script((_, connection) => (connection === server.connections[0] ? "silence" : undefined));
  void first.client.connect();
  await clock.advance(50);
  const connected = watch(second.client.connect());
  await clock.advance(11_000);
  assert.equal(connected.done, true);
  await clock.advance(1000);
  assert.equal(first.client.state, "connected");
  assert.equal(connections(), 1);
});

test("tabs of other users, and tabs without a token, have connections of their own", async (t) => {
  const { clock, server, open, connections } = stage(t);
  server.script((f) =>
    f.op === "hello" && f.token === "bob" && server.connections.length === 1
      ? [{ op: "error", id: f.id, code: "forbidden", detail: "it is alice's" }]
      : undefined,
  );
  const [alice, again, bob, nobody] = ["alice", "alice", "bob", undefined].map((auth) => open({ auth }).client);
  for (const client of [alice, again, bob, nobody]) {
    void client!.connect();
    await clock.advance(200);
    assert.equal(client!.state, "connected");
  }
  assert.deepEqual(
    server.connections.map((c) => c.token),
    ["alice", "bob", undefined],
  );
  assert.equal(connections(), 3);
});

test("where there are no locks each tab has a connection of its own", async (t) => {
  const { clock, open, connections } = stage(t);
  for (const _ of upTo(2)) void open({}, { locks: undefined as never }).client.connect();
  await clock.advance(50);
  assert.equal(connections(), 2);
});
