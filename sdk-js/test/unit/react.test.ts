import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Window } from "happy-dom";
import { createElement, StrictMode } from "react";
import { renderToString } from "react-dom/server";
import { createClient } from "../../src/client/client.js";
import {
  type SubscriptionSnapshot,
  TidewireProvider,
  type UseSubscriptionOptions,
  useClient,
  useConnection,
  usePublish,
  useSubscription,
} from "../../src/react.js";
import { fakeClock, fakeServer } from "../../src/testing/index.js";
import type { Published } from "../../src/types.js";
import { watch } from "./stage.js";

const window = new Window();
const { document } = window;
globalThis.navigator ??= window.navigator as unknown as Navigator;
Object.assign(globalThis, { window, document, IS_REACT_ACT_ENVIRONMENT: true });
const { createRoot } = await import("react-dom/client"); // it looks for a document when it is loaded
const { act } = await import("react");

/** What a view was given last. */
interface Seen extends SubscriptionSnapshot<number> {
  connection: string;
  renders: number;
  publish(value: number): Promise<Published>;
  publishers: Set<unknown>;
}

function View({ topic, opts, seen }: { topic: string; opts: UseSubscriptionOptions<number>; seen: Seen }) {
  const publish = usePublish<number>(topic);
  const connection = useConnection().state;
  Object.assign(seen, { error: undefined }, useSubscription<number>(topic, opts), { publish, connection });
  seen.renders++;
  seen.publishers.add(publish);
  return createElement("p", null, seen.messages.map((m) => m.value).join());
}

function Summary({ client }: { client: unknown }) {
  const { messages, status } = useSubscription("orders");
  return `${messages.length} ${status} ${useConnection().state} ${useClient() === client}`;
}

/** A view of `orders` in a page of its own. */
function page(t: TestContext, { strict = false } = {}) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const clock = fakeClock();
  const server = fakeServer(clock);
  const orders = server.topic("orders");
  server.topic("others");
  const { url, WebSocket, fetch } = server;
  const client = createClient({ url, WebSocket, fetch, clock });
  const seen = { renders: 0, publishers: new Set() } as unknown as Seen;
  const host = document.createElement("div");
  const root = createRoot(host as unknown as Element);
  const pass = (ms: number) =>
    act(async () => {
      await clock.advance(ms);
      t.mock.timers.tick(1);
      await clock.settle();
    });
  const show = async (opts: UseSubscriptionOptions<number> = {}, topic = "orders") => {
    const view = createElement(TidewireProvider, { client }, createElement(View, { topic, opts, seen }));
    await act(async () => root.render(strict ? createElement(StrictMode, null, view) : view));
    await pass(20);
  };
  t.after(async () => {
    await act(async () => root.unmount());
    const closed = watch(client.close());
    await clock.advance(10_000);
    assert.equal(closed.done, true);
    assert.equal(clock.pending, 0, "a timer is left");
  });
  const readers = () =>
    server.received.filter((f) => f.op === "subscribe").length -
    server.received.filter((f) => f.op === "unsubscribe").length;
  return { server, orders, client, seen, host, root, pass, show, readers };
}

test("a component shows what comes, of the topic that it names", async (t) => {
  const { orders, seen, host, pass, show, readers } = page(t);
  orders.append({ value: 1 });
  await show({ from: "earliest" });
  assert.equal(host.textContent, "1");
  const sent = watch(seen.publish(2));
  await pass(20);
  assert.equal(sent.value!.offset, 1);
  assert.equal(host.textContent, "1,2");
  assert.equal(seen.last!.value, 2);
  assert.equal(seen.connection, "connected");
  await show({ from: "earliest" });
  assert.equal(host.textContent, "1,2", "options that say the same are the same subscription");
  assert.equal(seen.publishers.size, 1);
  await show({}, "others");
  assert.equal(host.textContent, "", "another topic begins anew");
  assert.equal(seen.status, "live");
  assert.equal(readers(), 1);
});

test("what comes in one go is one render, and only the last are kept", async (t) => {
  const { orders, seen, pass, show, client } = page(t);
  await show({ from: "latest", keep: 3 });
  const before = seen.renders;
  const batch = client.publishBatch(
    "orders",
    Array.from({ length: 50 }, (_, value) => ({ value })),
  );
  await pass(20);
  await batch;
  assert.equal(orders.records.length, 50);
  assert.deepEqual(
    seen.messages.map((m) => m.value),
    [47, 48, 49],
  );
  assert.equal(seen.renders, before + 1);
});

test("a reducer keeps what it wants to, the one of the latest render", async (t) => {
  const { orders, seen, pass, show } = page(t);
  for (const value of [1, 2, 3, 4]) orders.append({ value });
  const keepIf = (fits: (n: number) => boolean): UseSubscriptionOptions<number> => ({
    from: "earliest",
    reduce: (all, m) => (fits(m.value) ? [...all, m] : all),
  });
  await show(keepIf((n) => n % 2 === 0));
  assert.deepEqual(
    seen.messages.map((m) => m.value),
    [2, 4],
  );
  await show(keepIf((n) => n % 2 === 1));
  for (const value of [5, 6]) void seen.publish(value);
  await pass(20);
  assert.deepEqual(
    seen.messages.map((m) => m.value),
    [2, 4, 5],
  );
});

test("a lost connection is shown, and what came meanwhile comes once", async (t) => {
  const { server, orders, seen, host, pass, show, client } = page(t);
  orders.append({ value: 1 });
  await show({ from: "earliest" });
  server.down({ sockets: true });
  await pass(5);
  assert.equal(seen.connection, "reconnecting");
  assert.equal(seen.status, "subscribing");
  orders.append({ value: 2 });
  server.down({ sockets: false });
  await pass(2000);
  assert.equal(client.state, "connected");
  assert.equal(seen.connection, "connected");
  assert.equal(host.textContent, "1,2");
});

test("a component that is mounted twice, as strict mode does, reads once and misses nothing", async (t) => {
  const { orders, host, show, readers } = page(t, { strict: true });
  orders.append({ value: 1 });
  orders.append({ value: 2 });
  await show({ from: "earliest" });
  assert.equal(host.textContent, "1,2");
  assert.equal(readers(), 1);
});

test("a component that goes unsubscribes", async (t) => {
  const { root, show, pass, readers } = page(t);
  await show();
  assert.equal(readers(), 1);
  await act(async () => root.render(null));
  await pass(20);
  assert.equal(readers(), 0);
});

test("a topic that is not there, and a client that is closed, are errors to show", async (t) => {
  const { seen, show, client, pass } = page(t);
  await show({}, "nowhere");
  assert.deepEqual([seen.status, seen.error!.code], ["closed", "topic-not-found"]);
  void client.close();
  await pass(6000);
  assert.equal(seen.connection, "closed");
  await show({}, "others");
  assert.deepEqual([seen.status, seen.error!.code], ["closed", "closed"]);
});

test("a server renders what there is before anything has come, and nothing without a provider", () => {
  const clock = fakeClock();
  const { url, WebSocket } = fakeServer(clock);
  const client = createClient({ url, WebSocket, clock });
  const summary = createElement(Summary, { client });
  assert.equal(renderToString(createElement(TidewireProvider, { client }, summary)), "0 subscribing idle true");
  assert.throws(() => renderToString(summary), /TidewireProvider/);
  assert.equal(clock.pending, 0);
});
