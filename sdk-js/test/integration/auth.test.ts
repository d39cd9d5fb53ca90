import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { TokenReason, TransportName } from "../../src/types.js";
import { sharedNode, startNode } from "./node.js";
import { clientOf } from "./world.js";

const secret = "a secret of the test, long enough";

const base64url = (text: string) => Buffer.from(text).toString("base64url");

function token(seconds: number, rights: object = { admin: true }): { token: string; expiresAt: number } {
  const exp = Math.floor(Date.now() / 1000) + seconds;
  const head = base64url(JSON.stringify({ alg: "HS256", typ: "JWT" }));
  const text = `${head}.${base64url(JSON.stringify({ sub: "tester", exp, tidewire: rights }))}`;
  return { token: `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`, expiresAt: exp * 1000 };
}

const dir = mkdtempSync(join(tmpdir(), "tidewire-sdk-key-"));
writeFileSync(join(dir, "key"), secret, { mode: 0o600 });
const node = sharedNode(["--auth-key-file", join(dir, "key")], async ({ url }) => {
  const headers = { Authorization: `Bearer ${token(60).token}`, "Content-Type": "application/json" };
  const answer = await fetch(`${url}/topics/`, { method: "POST", body: '{"name":"orders"}', headers });
  assert.equal(answer.status, 201, await answer.text());
});
after(() => rmSync(dir, { recursive: true }));

describe("tokens that end meanwhile", { concurrency: true }, () => {
  for (const transport of ["websocket", "sse", "poll"] satisfies TransportName[]) {
    test(`they are renewed over ${transport}, and nothing stops`, { timeout: 60_000 }, async (t) => {
      const asked: TokenReason[] = [];
      let renewed = () => {};
      const twice = new Promise<void>((resolve) => {
        renewed = resolve;
      });
      const auth = async ({ reason }: { reason: TokenReason }) => {
        if (asked.push(reason) === 3) renewed();
        return token(2); // so short that it has to be renewed meanwhile
      };
      const client = await clientOf(t, node, { auth, reconnect: { minDelayMs: 10, maxDelayMs: 100 } }, transport);
      const sub = client.subscribe("orders");
      await sub.ready();
      await twice;
      await client.publish("orders", transport);
      for await (const m of sub) if (m.value === transport) break;
      assert.equal(asked[0], "initial");
      assert.equal(client.state, "connected");
    });
  }
});

test("rights that are missing, no token and a bad one are said", { timeout: 60_000 }, async (t) => {
  const reader = await clientOf(t, node, { auth: token(60, { subscribe: ["*"] }) });
  await assert.rejects(reader.publish("orders", 1), (e: { code: string; problem: { right: string } }) => {
    assert.equal(e.code, "forbidden");
    assert.equal(e.problem.right, "publish");
    return true;
  });
  assert.equal(reader.state, "connected");
  for (const auth of [undefined, "nonsense", token(-10)]) {
    const client = await clientOf(t, node, { auth });
    await assert.rejects(client.connect(), { code: "unauthorized" });
    assert.equal(client.state, "failed");
  }
});

test("a node that asks nobody takes no token, and that is said too", { timeout: 60_000 }, async (t) => {
  const open = await startNode(t);
  const client = await clientOf(t, open, { auth: "anything" });
  await assert.rejects(client.connect(), { code: "invalid" });
});
