import assert from "node:assert/strict";
import { test } from "node:test";
import type { TidewireError } from "../../src/error.js";
import { sharedNode, startNode } from "./node.js";
import { clientOf, counter } from "./world.js";

const node = sharedNode();

const joined = (w: { on(event: "assigned", fn: () => void): unknown }) =>
  new Promise<void>((resolve) => w.on("assigned", resolve));

test("requests are shared by responders, and each gets its own reply", { timeout: 60_000 }, async (t) => {
  await node.createTopic("prices", { partitions: 4 });
  const caller = await clientOf(t, node);
  await assert.rejects(caller.request("prices", { item: "tea" }), { code: "no-responders" });

  const worked = [0, 0];
  for (const [i] of worked.entries()) {
    const client = await clientOf(t, node);
    const responder = client.respond(
      "prices",
      async ({ n }: { n: number }, { headers }) => {
        worked[i]!++;
        await new Promise((resolve) => setTimeout(resolve, 5)); // so that one alone cannot be quick enough
        return { twice: 2 * n, h: headers.h };
      },
      { concurrency: 4 },
    );
    await joined(responder);
  }
  const replies = await Promise.all(
    Array.from({ length: 100 }, (_, n) => caller.request("prices", { n }, { headers: { h: `h${n}` } })),
  );
  assert.deepEqual(
    replies,
    Array.from({ length: 100 }, (_, n) => ({ twice: 2 * n, h: `h${n}` })),
  );
  assert.equal(worked[0]! + worked[1]!, 100);
  assert.ok(worked[0]! > 0 && worked[1]! > 0, String(worked));
});

test("what a responder throws, and a reply that does not come, are errors of their own", {
  timeout: 60_000,
}, async (t) => {
  await node.createTopic("stock");
  const client = await clientOf(t, node);
  const responder = client.respond(
    "stock",
    (item: string) => {
      if (item === "slow") return new Promise((resolve) => setTimeout(resolve, 1000));
      throw Object.assign(new Error("no tea"), { status: 422, code: "sold-out" });
    },
    { group: "crew", concurrency: 2 },
  );
  await joined(responder);
  await assert.rejects(client.request("stock", "tea"), (e: TidewireError) => {
    assert.deepEqual([e.code, e.status, e.problem!.code, e.problem!.detail], ["responder", 422, "sold-out", "no tea"]);
    return true;
  });
  await assert.rejects(client.request("stock", "slow", { timeoutMs: 300 }), { code: "reply-timeout" });
  const id = { correlationId: "the-same", timeoutMs: 10_000 };
  const twice = [client.request("stock", "x", id), client.request("stock", "x", id)];
  for (const r of await Promise.allSettled(twice)) assert.equal(r.status === "rejected" && r.reason.status, 422);
  await assert.rejects(client.request("stock", "y", id), { code: "idempotency-key-reused" });
});

test("every request gets its reply though the node is killed, and killed again", { timeout: 120_000 }, async (t) => {
  const own = await startNode(t);
  await own.createTopic("prices", { partitions: 4 });
  const quick = { reconnect: { minDelayMs: 20, maxDelayMs: 200 } };
  const caller = await clientOf(t, own, quick);
  const server = await clientOf(t, own, quick);
  const responder = server.respond("prices", (n: number) => ({ n }), { concurrency: 8 });
  await joined(responder);
  const answered = counter(300);
  const ask = async (first: number) => {
    for (let n = first; n < 300; n += 10) {
      assert.deepEqual(await caller.request("prices", n, { timeoutMs: 60_000 }), { n });
      answered.hit();
    }
  };
  const asking = Promise.all(Array.from({ length: 10 }, (_, first) => ask(first)));
  for (const at of [80, 190]) {
    await answered.at(at);
    await own.kill();
    await own.start();
  }
  await asking;
  await responder.stop();
});
