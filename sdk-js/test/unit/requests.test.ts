import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient } from "../../src/client/client.js";
import { requests } from "../../src/features/requests.js";
import type { ServerFrame } from "../../src/protocol/frames.js";
import type { WireMessage } from "../../src/protocol/message.js";
import { fakeClock, fakeServer, type Incoming, type Script } from "../../src/testing/index.js";
import { watch } from "./stage.js";

type Asked = Incoming & { correlation: string; timeout: string; to: string; status?: number };

/** A client whose server answers frames as told, and in the end leaves nothing behind. */
function asking(script: (frame: Asked, n: number) => ReturnType<Script>) {
  const clock = fakeClock();
  const server = fakeServer(clock);
  const { url, WebSocket } = server;
  const client = createClient({ url, WebSocket, clock, use: [requests()] });
  let n = 0;
  server.script((frame) => (frame.op === "request" || frame.op === "reply" ? script(frame as Asked, ++n) : undefined));
  const asked = () => server.received.filter((f) => f.op === "request") as Asked[];
  const close = async () => {
    const closed = watch(client.close());
    await clock.advance(20_000);
    assert.equal(closed.done, true);
    assert.equal(clock.pending, 0, "a timer is left");
  };
  return { clock, server, client, asked, close };
}

const accepted = ({ id, correlation }: Asked): ServerFrame =>
  ({ op: "accepted", id, partition: 0, offset: 0, correlation }) as ServerFrame;
const replied = ({ id }: Asked, value: unknown): ServerFrame => ({ op: "reply", id, value });
const refused = ({ id }: Asked, code: string, more = {}): ServerFrame => ({ op: "error", id, code, ...more });

test("a reply resolves the request, also one that comes long after it was accepted", async () => {
  const { clock, client, server, asked, close } = asking((f) => {
    clock.after(3000, () => server.connections[0]!.send(replied(f, { owes: 5 })));
    return [accepted(f)];
  });
  const reply = watch(client.request<{ owes: number }>("orders", { total: 5 }, { key: "alice", headers: { h: "1" } }));
  await clock.advance(2000);
  assert.equal(reply.done, false);
  await clock.advance(2000);
  assert.deepEqual(reply.value, { owes: 5 });
  const [frame] = asked() as unknown as Array<Record<string, unknown>>;
  assert.deepEqual(
    [frame!.key, frame!.headers, frame!.value, frame!.timeout],
    ["alice", { h: "1" }, { total: 5 }, "4997ms"],
  );
  await close();
});

test("bytes come back as bytes, and a request without a value is the caller's fault", async () => {
  const { clock, client, close } = asking((f) => [{ op: "reply", id: f.id, value_base64: "AP8=" }]);
  const reply = watch(client.request("orders", new Uint8Array([1])));
  const nothing = watch(client.request("orders", undefined));
  await clock.advance(50);
  assert.deepEqual(reply.value, new Uint8Array([0, 255]));
  assert.equal((nothing.error as unknown as TypeError) instanceof TypeError, true);
  await close();
});

test("a connection that is lost has the request asked again as the same one, with what is left of its time", async () => {
  const { clock, client, asked, close } = asking((f, n) =>
    n === 1 ? "unanswered" : n === 2 ? "lost" : [accepted(f), replied(f, "once")],
  );
  const reply = watch(client.request("orders", 1, { timeoutMs: 30_000, correlationId: "order-1" }));
  await clock.advance(10_000);
  assert.equal(reply.value, "once");
  const all = asked();
  assert.deepEqual(
    all.map((f) => f.correlation),
    ["order-1", "order-1", "order-1"],
  );
  const left = all.map((f) => Number.parseInt(f.timeout, 10));
  assert.ok(left[0]! > left[1]! && left[1]! > left[2]!, String(left));
  await close();
});

test("a reply that is lost with its connection is collected over the next one", async () => {
  const { clock, client, server, close } = asking((f, n) => (n === 1 ? [accepted(f)] : [replied(f, "kept")]));
  const reply = watch(client.request("orders", 1));
  await clock.advance(100);
  server.connections[0]!.close();
  await clock.advance(2000);
  assert.equal(reply.value, "kept");
  await close();
});

test("nobody responds: an error at once, but not where an earlier try may have found somebody", async () => {
  const first = asking((f) => [refused(f, "no-responders", { detail: "nobody" })]);
  const reply = watch(first.client.request("orders", 1));
  await first.clock.advance(50);
  assert.equal(reply.error!.code, "no-responders");
  assert.equal(first.asked().length, 1);
  await first.close();

  const second = asking((f, n) =>
    n === 1 ? "unanswered" : n < 4 ? [refused(f, "no-responders")] : [replied(f, "after all")],
  );
  const later = watch(second.client.request("orders", 1));
  await second.clock.advance(5000);
  assert.equal(later.value, "after all");
  await second.close();
});

test("a refusal of the moment is got over, one for good is not", async () => {
  const busy = asking((f, n) =>
    n === 1
      ? [refused(f, "leader-unavailable", { retry_after: "300ms" })]
      : n === 2
        ? [refused(f, "unknown-outcome")]
        : [replied(f, n)],
  );
  const reply = watch(busy.client.request("orders", 1));
  await busy.clock.advance(290);
  assert.equal(busy.asked().length, 1, "the hint is waited for");
  await busy.clock.advance(1000);
  assert.equal(reply.value, 3);
  await busy.close();

  for (const code of ["forbidden", "topic-not-found", "reply-timeout", "idempotency-key-reused"]) {
    const never = asking((f) => [refused(f, code)]);
    const refusal = watch(never.client.request("orders", 1));
    await never.clock.advance(50);
    assert.equal(refusal.error!.code, code);
    assert.equal(never.asked().length, 1);
    await never.close();
  }
});

test("time that is up says whether the request may have arrived", async () => {
  const silent = asking((f) => [accepted(f)]);
  const waited = watch(silent.client.request("orders", 1, { timeoutMs: 1000 }));
  await silent.clock.advance(1999);
  assert.equal(waited.done, false, "the node may still say it");
  await silent.clock.advance(2);
  assert.equal(waited.error!.code, "reply-timeout");
  await silent.close();

  const away = asking(() => undefined);
  away.server.down({ sockets: true });
  const unsent = watch(away.client.request("orders", 1, { timeoutMs: 1000 }));
  await away.clock.advance(1001);
  assert.equal(unsent.error!.code, "timeout");
  await away.close();

  const refusing = asking((f) => [refused(f, "not-enough-replicas")]);
  const kept = watch(refusing.client.request("orders", 1, { timeoutMs: 1000 }));
  await refusing.clock.advance(2001);
  assert.equal(kept.error!.code, "not-enough-replicas", "what was in the way is said");
  await refusing.close();
});

test("a request that is aborted, or whose client closes, ends", async () => {
  const { clock, client, close } = asking((f) => [accepted(f)]);
  const control = new AbortController();
  const aborted = watch(client.request("orders", 1, { signal: control.signal }));
  const closed = watch(client.request("orders", 2));
  await clock.advance(50);
  control.abort(new Error("enough"));
  await clock.advance(1);
  assert.equal(aborted.error!.message, "enough");
  const timers = clock.pending;
  const already = watch(client.request("orders", 3, { signal: control.signal }));
  await clock.advance(1);
  assert.equal(clock.pending, timers);
  assert.equal(already.error!.message, "enough");
  await close();
  assert.equal(closed.error!.code, "closed");
  await assert.rejects(client.request("orders", 4), { code: "closed" });
});

test("a responder's own failure is an error of its own, with its status and what it said", async () => {
  const answers: Array<Partial<ServerFrame>> = [
    { status: 422, value: { code: "sold-out", detail: "no tea", item: "tea" } },
    { status: 500, value: "it broke" },
    { status: 503, value: null },
  ];
  const { clock, client, close } = asking((f, n) => [{ op: "reply", id: f.id, ...answers[n - 1] }]);
  const errors = answers.map(() => watch(client.request("orders", 1)));
  await clock.advance(50);
  assert.deepEqual(
    errors.map(({ error }) => [error!.code, error!.status, error!.retryable]),
    [422, 500, 503].map((status) => ["responder", status, false]),
  );
  assert.deepEqual(errors[0]!.error!.problem, { status: 422, code: "sold-out", detail: "no tea", item: "tea" });
  assert.match(errors[1]!.error!.message, /it broke/);
  await close();
});

const leaseMs = 30_000;

/** A responder of one group that is given requests, and what it replied. */
function responding(
  leased: (now: number) => Array<Partial<WireMessage>>,
  handler: (value: never) => unknown,
  answer: (frame: Asked, n: number) => ReturnType<Script> = ({ id }) => [{ op: "replied", id }],
) {
  const a = asking(answer);
  const { clock, server, client } = a;
  const replies = () => server.received.filter((f) => f.op === "reply") as Asked[];
  const settled = () => server.received.flatMap((f) => (/^(n?ack|reject)$/.test(f.op) ? [f.op] : []));
  let n = 0;
  const script: Script = (f, c) => {
    const { id } = f;
    if (f.op === "reply") return answer(f as Asked, ++n);
    if (f.op === "join" && !(f as { mode?: string }).mode) return [{ op: "error", id, code: "group-not-found" }];
    if (f.op === "join") {
      const messages = leased(clock.now() + skewMs).map((m, offset) => message({ ...m, offset }, clock.now() + skewMs));
      return [
        { op: "joined", id, sub: "g1", member: "m", partitions: [0] },
        ...(messages.length ? [{ op: "messages", sub: "g1", messages }] : []),
      ];
    }
    if (f.op === "leave") return [{ op: "left", id }];
    return /^(n?ack|reject|extend)$/.test(f.op) ? [{ op: "acked", id }] : void c;
  };
  server.script(script);
  const errors: string[] = [];
  const w = client.respond("orders", handler, { concurrency: 4 });
  w.on("error", (e) => errors.push(e.code));
  return { ...a, replies, settled, errors };
}

/** This machine's clock is an hour slow. */
const skewMs = 3_600_000;

const message = (m: Partial<WireMessage>, now: number): WireMessage => ({
  topic: "orders",
  partition: 0,
  offset: 0,
  timestamp: "2026-01-31T15:04:05.123Z",
  key: null,
  content_type: "application/json",
  headers: {},
  value: 1,
  delivery: 1,
  lease_ms: leaseMs,
  lease_until: new Date(now + leaseMs).toISOString(),
  ...m,
});

const request = (to: string, deadline?: number, value: unknown = to): Partial<WireMessage> => ({
  value,
  headers: {
    "Tidewire-Reply-To": to,
    ...(deadline && { "Tidewire-Deadline": new Date(deadline).toISOString() }),
  },
});

test("a responder joins a shared group from now on, replies, and then acknowledges", async () => {
  const { clock, server, replies, settled, close } = responding(
    (now) => [request("a", now + 5000, { total: 5 }), request("b")],
    (value: { total?: number }) => value.total && { owes: value.total },
  );
  await clock.advance(50);
  const join = server.received.filter((f) => f.op === "join").at(-1) as unknown as Record<string, unknown>;
  assert.deepEqual([join.group, join.mode, join.from], ["responders", "shared", "latest"]);
  assert.deepEqual(
    replies().map((f) => [f.to, f.value, f.status]),
    [
      ["a", { owes: 5 }, undefined],
      ["b", null, undefined],
    ],
  );
  assert.deepEqual(settled(), ["ack", "ack"]);
  await close();
});

test("a group that is there keeps its settings", async () => {
  const { clock, client, server, close } = asking(() => undefined);
  server.script((f) =>
    f.op === "join"
      ? [{ op: "joined", id: f.id, sub: "g1", member: "m", partitions: [0] }]
      : f.op === "leave"
        ? [{ op: "left", id: f.id }]
        : undefined,
  );
  client.respond("orders", () => 1, { group: "prices" });
  await clock.advance(50);
  const joins = server.received.filter((f) => f.op === "join") as unknown as Array<Record<string, unknown>>;
  assert.deepEqual(
    joins.map((j) => [j.group, j.mode]),
    [["prices", undefined]],
  );
  await close();
});

test("what is no request, and what nobody waits for any more, is acknowledged without a run", async () => {
  const { clock, replies, settled, close } = responding(
    (now) => [{}, request("late", now - 1), request("in time", now + 1000)],
    (value) => value,
  );
  await clock.advance(50);
  assert.deepEqual(
    replies().map((f) => f.to),
    ["in time"],
    "by the node's clock, whatever this machine's says",
  );
  assert.deepEqual(settled(), ["ack", "ack", "ack"]);
  await close();
});

test("what a responder throws is the reply", async () => {
  const thrown = [new Error("broke"), Object.assign(new Error("no tea"), { status: 422, code: "sold-out" }), "text"];
  const { clock, replies, settled, close } = responding(
    () => [request("0"), request("1"), request("2")],
    (value) => {
      throw thrown[Number(value)];
    },
  );
  await clock.advance(50);
  assert.deepEqual(
    replies().map((f) => [f.status, f.value]),
    [
      [500, { detail: "broke" }],
      [422, { code: "sold-out", detail: "no tea" }],
      [500, { detail: "text" }],
    ],
  );
  assert.deepEqual(settled(), ["ack", "ack", "ack"]);
  await close();
});

test("a reply is said again until it is taken, and one that is refused for itself becomes a failure", async () => {
  const { clock, replies, settled, errors, close } = responding(
    () => [request("a")],
    () => "x",
    (f, n) =>
      n === 1
        ? [refused(f, "unknown-outcome")]
        : n === 2
          ? [refused(f, "message-too-large", { detail: "too large" })]
          : [{ op: "replied", id: f.id }],
  );
  await clock.advance(500);
  assert.deepEqual(
    replies().map((f) => f.status),
    [undefined, undefined, 500],
  );
  assert.deepEqual([settled(), errors], [["ack"], []]);
  await close();
});

test("a requester that has left is no fault; a right that is missing has the request come again", async () => {
  const { clock, settled, errors, close } = responding(
    () => [request("gone"), request("forbidden")],
    () => "x",
    (f) => [refused(f, f.to === "gone" ? "requester-gone" : "forbidden")],
  );
  await clock.advance(50);
  assert.deepEqual(settled().toSorted(), ["ack", "nack"]);
  assert.deepEqual(errors, []);
  await close();
});
