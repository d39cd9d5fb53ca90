import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, type TestContext } from "node:test";
import { WebSocket as WsWebSocket } from "ws";
import type { ClientOptions } from "../../src/types.js";
import { keepPort } from "./ports.js";

/** The built binary, as one node with a data folder of its own. */
export interface TestNode {
  url: string;
  /** As kill -9 does, unless another signal is named. */
  kill(signal?: "SIGKILL" | "SIGTERM"): Promise<void>;
  /** Starts it again, at the same address. */
  start(): Promise<void>;
  createTopic(name: string, settings?: object): Promise<void>;
  deleteTopic(name: string): Promise<void>;
}

const binary = process.env.TEST_TIDEWIRE_BIN ?? "../bin/tidewire";

const any = "127.0.0.1:0";

export async function startNode(
  t: Pick<TestContext, "after">,
  args: string[] = [],
  { rpc = any, raft = any, gossip = any } = {},
): Promise<TestNode> {
  const dir = mkdtempSync(join(tmpdir(), "tidewire-sdk-"));
  const port = await keepPort();
  let child: ChildProcess | undefined;
  let said = "";

  const node: TestNode = {
    url: `http://${port.address}`,
    async start() {
      const listeners = ["--http", port.address, "--rpc", rpc, "--raft", raft, "--gossip", gossip];
      const started = spawn(binary, ["serve", "--data", dir, ...listeners, ...args], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      child = started;
      started.stderr!.on("data", (chunk: Buffer) => {
        said = (said + chunk).slice(-10_000);
      });
      await once(started, "spawn");
      for await (const line of createInterface({ input: started.stdout! })) {
        if (!line.startsWith("ready in ")) continue;
        return;
      }
      assert.fail(`the node did not get ready:\n${said}`);
    },
    async kill(signal = "SIGKILL") {
      if (!child || child.exitCode !== null || child.signalCode !== null) return;
      const exited = once(child, "exit");
      child.kill(signal);
      await exited;
    },
    async createTopic(name, settings = {}) {
      const body = JSON.stringify({ name, ...settings });
      const answer = await fetch(`${node.url}/topics/`, {
        method: "POST",
        body,
        headers: { "Content-Type": "application/json" },
      });
      assert.equal(answer.status, 201, await answer.text());
    },
    async deleteTopic(name) {
      const answer = await fetch(`${node.url}/topics/${name}`, { method: "DELETE" });
      assert.equal(answer.status, 204, await answer.text());
    },
  };
  t.after(async () => {
    await node.kill();
    await port.release();
    rmSync(dir, { recursive: true, force: true });
  });
  await node.start();
  return node;
}

/** A cluster of three, each with a name: n1, n2, n3. */
export async function startCluster(t: TestContext): Promise<TestNode[]> {
  const addresses = await Promise.all(Array.from({ length: 9 }, () => deadAddress(t)));
  const [rpc, raft, gossip] = [0, 3, 6].map((i) => addresses.slice(i, i + 3).map((url) => new URL(url).host));
  const join = gossip!.join();
  return Promise.all(
    [0, 1, 2].map((i) =>
      startNode(t, ["--name", `n${i + 1}`, "--bootstrap-expect", "3", "--join", join], {
        rpc: rpc![i],
        raft: raft![i],
        gossip: gossip![i],
      }),
    ),
  );
}

/** One node for all tests of a file; topics keep them apart. */
export function sharedNode(args: string[] = [], prepare?: (node: TestNode) => Promise<void>): TestNode {
  const ends: Array<() => unknown> = [];
  const node = {} as TestNode;
  before(async () => {
    Object.assign(node, await startNode({ after: (fn) => void ends.push(fn as () => unknown) }, args));
    await prepare?.(node);
  });
  after(async () => {
    for (const end of ends) await end();
  });
  return node;
}

/** Node 20 has no WebSocket of its own. */
export const WebSocket = WsWebSocket as unknown as NonNullable<ClientOptions["WebSocket"]>;

/** An address at which nothing listens, for as long as the test lasts. */
export async function deadAddress(t: Pick<TestContext, "after">): Promise<string> {
  const port = await keepPort();
  t.after(() => port.release());
  return `http://${port.address}`;
}
