import assert from "node:assert/strict";
import { test } from "node:test";
import { TidewireError } from "../../src/error.js";
import type { Http } from "../../src/features/http.js";
import { linePublisher } from "../../src/features/lines.js";
import type { PublishFrame, ServerFrame } from "../../src/protocol/frames.js";

const frame = (id: number, more: Partial<PublishFrame> = {}): PublishFrame => ({
  op: "publish",
  id,
  topic: "orders",
  partition: 0,
  producer: "p1",
  sequence: id,
  body: `"value":${id}`,
  ...more,
});

function lines(http: Http) {
  const answers: ServerFrame[] = [];
  const broken: string[] = [];
  const publish = linePublisher(
    http,
    (f) => answers.push(f),
    (e) => broken.push(e.code),
    new AbortController().signal,
  );
  return { publish, answers, broken, turn: () => new Promise<void>((resolve) => setImmediate(resolve)) };
}

test("one call has what counts up by line; a gap, another producer or other acks begin the next", async () => {
  const calls: string[] = [];
  const http: Http = async (_, { body, headers, query } = {}) => {
    const sent = body!.trimEnd().split("\n");
    const acks = query?.acks === undefined ? "" : ` ${query.acks}`;
    calls.push(`${headers!["Tidewire-Producer"]} from ${headers!["Tidewire-Sequence"]}: ${sent.join()}${acks}`);
    return new Response(sent.map(() => '{"offset":0}').join("\n"));
  };
  const { publish, answers, turn } = lines(http);
  for (const id of [0, 1, 3, 4]) publish(frame(id));
  publish(frame(5, { sequence: 0, body: frame(0).body, producer: "p2" }));
  publish(frame(6, { sequence: 1, body: frame(1).body, producer: "p2", acks: "leader" }));
  publish(frame(7, { producer: undefined, sequence: undefined, acks: "none" }));
  publish(frame(8, { producer: undefined, sequence: undefined, acks: "none" }));
  await turn();
  assert.deepEqual(calls, [
    'p1 from 0: {"value":0},{"value":1}',
    'p1 from 3: {"value":3},{"value":4}',
    'p2 from 0: {"value":0}',
    'p2 from 1: {"value":1} leader',
    'undefined from undefined: {"value":7},{"value":8} none',
  ]);
  assert.deepEqual(
    answers.map((a) => `${a.op} ${a.id}`),
    [0, 1, 3, 4, 5, 6, 7, 8].map((id) => `published ${id}`),
  );
});

test("a call that is refused answers all its records, one that does not arrive breaks the link", async () => {
  const refusals = [
    new TidewireError("throttled", "", { problem: { detail: "slower" }, retryAfterMs: 2000 }),
    new TidewireError("network", ""),
  ];
  const { publish, answers, broken, turn } = lines(() => Promise.reject(refusals.shift()));
  publish(frame(0));
  publish(frame(1));
  await turn();
  assert.deepEqual(
    answers.map((a) => [a.op, a.id, a.code, a.detail, a.retry_after]),
    [
      ["error", 0, "throttled", "slower", "2000ms"],
      ["error", 1, "throttled", "slower", "2000ms"],
    ],
  );
  assert.deepEqual(broken, []);
  publish(frame(2));
  await turn();
  assert.deepEqual(broken, ["network"]);
});
