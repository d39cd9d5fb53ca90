import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import { type InHand, startable } from "../../src/core/hand.js";
import { worker } from "../../src/features/worker.js";
import type { ServerFrame } from "../../src/protocol/frames.js";
import type { WireMessage } from "../../src/protocol/message.js";
import { fakeClock, fakeServer, type Incoming } from "../../src/testing/index.js";
import type { WorkItem } from "../../src/types.js";
import { watch } from "./stage.js";

const leaseMs = 10_000;

const leased = (offset: number, more: Partial<WireMessage> = {}): WireMessage => ({
  topic: "jobs",
  partition: 0,
  offset,
  timestamp: "2026-01-31T15:04:05.123Z",
  key: null,
  content_type: "application/json",
  headers: {},
  value: offset,
  delivery: 1,
  lease_ms: leaseMs,
  ...more,
});

/** A client and a group that gives it what `lease` returns whenever it joins. */
function groupOf(lease: (joins: number) => WireMessage[], answers?: (frame: Incoming) => ServerFrame[] | undefined) {
  const clock = fakeClock();
  const server = fakeServer(clock);
  const { url, WebSocket } = server;
  const client = createClient({ url, WebSocket, clock, use: [worker()] });
  let joins = 0;
  server.script((frame) => {
    const told = answers?.(frame);
    if (told) return told;
    const { id } = frame;
    if (frame.op === "join") {
      const sub = `g${++joins}`;
      const messages = lease(joins);
      const begun: ServerFrame = { op: "joined", id, sub, member: "m1", partitions: [0] };
      return messages.length ? [begun, { op: "messages", sub, messages }] : [begun];
    }
    if (frame.op === "leave") return [{ op: "left", id }];
    return /^(ack|nack|reject|extend)$/.test(frame.op) ? [{ op: "acked", id }] : undefined;
  });
  const said = () =>
    server.received.flatMap((f) => ("offset" in f && f.op !== "extend" ? [`${f.op} ${f.offset}`] : []));
  const close = async () => {
    const closed = watch(client.close());
    await clock.advance(20_000);
    assert.equal(closed.done, true);
    assert.equal(clock.pending, 0, "a timer is left");
  };
  return { clock, server, client, said, close };
}

test("of each key one record is worked on, in order, and no more than allowed", () => {
  const hand = (keys: Array<string | undefined>): InHand[] => keys.map((key) => ({ key, phase: "waiting" }));
  const begun = (records: InHand[], n: number) => startable(records, n).map((r) => records.indexOf(r));
  assert.deepEqual(begun(hand(["a", "a", "b", undefined, undefined]), 9), [0, 2, 3, 4]);
  assert.deepEqual(begun(hand(["a", "a", "b"]), 1), [0]);
  const records = hand(["a", "b", "a", "b"]);
  records[0]!.phase = "running";
  records[1]!.phase = "done";
  assert.deepEqual(begun(records, 9), [3]);
});

test("what the handler returns from is acknowledged, what it throws at is not", async () => {
  const { clock, client, server, said, close } = groupOf((n) => (n === 1 ? [0, 1, 2, 3].map((o) => leased(o)) : []));
  const handler = ({ value }: WorkItem) => {
    if (value === 1) throw new Error("again");
    if (value === 2) throw new Error("never");
    if (value === 3) throw new Error("later");
  };
  const onError = (_: unknown, { value }: WorkItem) =>
    value === 1 ? ("nack" as const) : value === 2 ? ("reject" as const) : { retryInMs: 250 };
  client.worker("billing", "jobs", handler, { onError });
  await clock.advance(50);
  assert.deepEqual(said(), ["ack 0", "nack 1", "reject 2", "nack 3"]);
  const [, , rejected, delayed] = server.received.filter((f) => "offset" in f) as Array<
    Incoming & { reason?: string; delay?: string }
  >;
  assert.equal(rejected!.reason, "handler: never");
  assert.equal(delayed!.delay, "250ms");
  assert.equal(server.received.filter((f) => f.op === "credit").length, 4);
  await close();
  assert.equal(server.received.at(-1)!.op, "leave");
});

test("a judge that throws is told of, and the record comes again", async () => {
  const { clock, client, said, close } = groupOf((n) => (n === 1 ? [leased(0)] : []));
  const fail = (message: string) => () => {
    throw new Error(message);
  };
  const errors: string[] = [];
  client.worker("billing", "jobs", fail("work"), { onError: fail("judge") }).on("error", (e) => errors.push(e.message));
  await clock.advance(50);
  assert.deepEqual(errors, ["handler: judge"]);
  assert.deepEqual(said(), ["nack 0"]);
  await close();
});

test("a lease is extended while the handler runs, and its end is told", async () => {
  let refuse = false;
  const answers = (f: Incoming): ServerFrame[] | undefined =>
    f.op === "extend" && refuse
      ? [{ op: "acked", id: f.id, stale: [{ partition: 0, offset: 0, reason: "fenced" }] }]
      : undefined;
  const { clock, server, client, close } = groupOf((n) => (n === 1 ? [leased(0)] : []), answers);
  let item: WorkItem | undefined;
  let finish = () => {};
  client.worker("billing", "jobs", (i) => {
    item = i;
    return new Promise<void>((resolve) => {
      finish = resolve;
    });
  });
  await clock.advance(4 * leaseMs);
  const extends_ = server.received.filter((f) => f.op === "extend").length;
  assert.ok(extends_ >= 7, `${extends_} extensions`);
  assert.equal(item!.signal.aborted, false);
  assert.ok(item!.leaseUntil.getTime() > clock.now());
  refuse = true;
  await clock.advance(2 * leaseMs);
  assert.equal(item!.signal.aborted, true);
  finish();
  await close();
});

test("a lost connection starts nothing twice, and what was done meanwhile is said after", async () => {
  const { clock, server, client, said, close } = groupOf(() => [leased(0), leased(1)]);
  const begun: number[] = [];
  const ends: Array<() => void> = [];
  client.worker("billing", "jobs", ({ offset }) => {
    begun.push(offset);
    return new Promise<void>((resolve) => ends.push(resolve));
  });
  await clock.advance(20);
  server.down({ sockets: true });
  await clock.advance(100);
  ends[0]!(); // done without a connection
  server.down({ sockets: false });
  await clock.advance(2000);
  assert.deepEqual(said(), ["ack 0"]);
  assert.deepEqual(begun, [0, 1], "the one that was not begun comes again");
  const joins = server.received.filter((f) => f.op === "join") as Array<{ member?: string }>;
  assert.deepEqual(
    joins.map((j) => j.member),
    [undefined, "m1"],
  );
  ends[1]!();
  await clock.advance(20);
  assert.deepEqual(said(), ["ack 0", "ack 1"]);
  await close();
});

test("a group that is missing is made, one with other settings or without the right ends the worker", async () => {
  let asked = 0;
  const missing = (f: Incoming): ServerFrame[] | undefined =>
    f.op === "join" && asked++ === 0 ? [{ op: "error", id: f.id, code: "group-not-found" }] : undefined;
  const first = groupOf(() => [], missing);
  first.client.worker("billing", "jobs", () => {});
  await first.clock.advance(50);
  const second = first.server.received.filter((f) => f.op === "join")[1] as unknown as { mode: string };
  assert.equal(second.mode, "exclusive");
  await first.close();

  const other = groupOf(
    () => [],
    (f) => (f.op === "join" ? [{ op: "error", id: f.id, code: "group-exists" }] : undefined),
  );
  const errors: string[] = [];
  other.client
    .worker("billing", "jobs", () => {}, { mode: "shared", leaseMs: 500 })
    .on("error", (e) => errors.push(e.code));
  await other.clock.advance(50);
  assert.deepEqual(errors, ["group-exists"]);
  const join = other.server.received.find((f) => f.op === "join") as unknown as { lease: string; mode: string };
  assert.deepEqual([join.lease, join.mode], ["500ms", "shared"]);
  await other.close();
});

test("a record can be settled by hand, once, and hears when it went elsewhere", async () => {
  const answers = (f: Incoming): ServerFrame[] | undefined =>
    f.op === "ack" ? [{ op: "acked", id: f.id, stale: [{ partition: 0, offset: 0, reason: "fenced" }] }] : undefined;
  const { clock, client, said, close } = groupOf((n) => (n === 1 ? [leased(0)] : []), answers);
  const codes: string[] = [];
  client.worker("billing", "jobs", async (item) => {
    await item.ack().catch((e) => codes.push(e.code));
    await item.nack().catch((e) => codes.push(e.code));
  });
  await clock.advance(50);
  assert.deepEqual(codes, ["fenced", "invalid"]);
  assert.deepEqual(said(), ["ack 0"]);
  await close();
});

test("a member that is fenced joins again, partitions come and go", async () => {
  const { clock, server, client, close } = groupOf(() => []);
  const w = client.worker("billing", "jobs", () => {});
  const told: string[] = [];
  w.on("assigned", (p) => told.push(`+${p}`));
  w.on("revoked", (p) => told.push(`-${p}`));
  await clock.advance(20);
  const send = (frame: ServerFrame) => server.connections[0]!.send(frame);
  send({ op: "assigned", sub: "g1", partitions: [1, 2] });
  send({ op: "revoked", sub: "g1", partitions: [0] });
  await clock.advance(20);
  assert.deepEqual(told, ["+0", "+1,2", "-0"]);
  assert.deepEqual(w.assigned, [1, 2]);
  send({ op: "error", sub: "g1", code: "fenced", detail: "joined elsewhere" });
  await clock.advance(5000);
  assert.equal(server.received.filter((f) => f.op === "join").length, 2);
  assert.deepEqual(w.assigned, [0]);
  await close();
});

test("stop takes nothing new, waits for what is worked on, and no longer than told", async () => {
  const { clock, server, client, said, close } = groupOf((n) => (n === 1 ? [leased(0), leased(1)] : []));
  let finish = () => {};
  const w = client.worker(
    "billing",
    "jobs",
    () =>
      new Promise<void>((resolve) => {
        finish = resolve;
      }),
  );
  await clock.advance(20);
  const stopped = watch(w.stop({ drainMs: 5000 }));
  await clock.advance(1000);
  assert.equal(stopped.done, false);
  finish();
  await clock.advance(20);
  assert.equal(stopped.done, true);
  assert.deepEqual(said(), ["ack 0"]);
  assert.equal(server.received.at(-1)!.op, "leave");
  await close();
});

test("stop does not wait for ever for a node that does not answer", async () => {
  const silent = (frame: Incoming): ServerFrame[] | undefined => (frame.op === "leave" ? [] : undefined);
  const { clock, client, server, close } = groupOf(() => [], silent);
  const w = client.worker("billing", "jobs", () => {});
  await clock.advance(20);
  const stopped = watch(w.stop({ drainMs: 1000 }));
  await clock.advance(999);
  assert.equal(server.received.at(-1)!.op, "leave");
  assert.equal(stopped.done, false);
  await clock.advance(2);
  assert.equal(stopped.done, true);
  await close();
});

test("a page that goes for good leaves the group, one that may come back does not", async () => {
  const page = new EventTarget();
  Object.assign(globalThis, {
    addEventListener: page.addEventListener.bind(page),
    removeEventListener: page.removeEventListener.bind(page),
  });
  try {
    const { clock, client, server, close } = groupOf(() => []);
    client.worker("billing", "jobs", () => {});
    await clock.advance(20);
    const hide = async (persisted: boolean) => {
      page.dispatchEvent(Object.assign(new Event("pagehide"), { persisted }));
      await clock.advance(20);
      return server.received.filter((f) => f.op === "leave").length;
    };
    assert.equal(await hide(true), 0);
    assert.equal(await hide(false), 1);
    await close();
    await hide(false);
  } finally {
    for (const name of ["addEventListener", "removeEventListener"]) Reflect.deleteProperty(globalThis, name);
  }
});
