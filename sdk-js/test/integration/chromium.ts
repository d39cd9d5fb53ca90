import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { TestContext } from "node:test";
import { WebSocket } from "ws";

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** A page in a headless browser. */
export interface Page {
  /** The value of an expression, which may be a promise. */
  evaluate<V>(expression: string): Promise<V>;
}

interface Answer {
  id?: number;
  method?: string;
  result: { sessionId: string; targetId: string; result: { value: never }; exceptionDetails?: unknown };
  error?: { message: string };
}

/** Opens a page; undefined, and the test skipped aloud, where there is no browser. */
export async function openPage(t: TestContext, url: string): Promise<Page | undefined> {
  const binary = places.find(existsSync);
  if (!binary) return void t.skip("NOT TESTED: chromium is missing");
  const profile = mkdtempSync(join(tmpdir(), "tidewire-sdk-browser-"));
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
  const args = [...flags, `--user-data-dir=${profile}`, "--remote-debugging-port=0", "about:blank"];
  // A browser is many processes; all of them end with their group.
  const browser = spawn(binary, args, { stdio: ["ignore", "ignore", "pipe"], detached: true });
  t.after(async () => {
    const exited = once(browser, "exit");
    process.kill(-browser.pid!, "SIGKILL");
    await exited;
    rmSync(profile, { recursive: true, force: true, maxRetries: 50 });
  });

  let address = "";
  for await (const line of createInterface({ input: browser.stderr })) {
    address = line.split("DevTools listening on ")[1] ?? "";
    if (address) break;
  }
  const socket = new WebSocket(address);
  await once(socket, "open");
  t.after(() => socket.terminate());
  const waiting = new Map<number, (answer: Answer) => void>();
  socket.on("message", (data) => {
    const answer = JSON.parse(String(data)) as Answer;
    waiting.get(answer.id!)?.(answer);
    if (answer.method === "Page.loadEventFired") loaded();
  });
  let loaded = () => {};
  let id = 0;
  const call = async (method: string, params: object, sessionId?: string) => {
    const mine = ++id;
    socket.send(JSON.stringify({ id: mine, method, params, sessionId }));
    const { result, error } = await new Promise<Answer>((resolve) => waiting.set(mine, resolve));
    if (error || result.exceptionDetails) throw new Error(JSON.stringify(error ?? result.exceptionDetails));
    return result;
  };
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  await call("Page.enable", {}, sessionId);
  const there = new Promise<void>((resolve) => {
    loaded = resolve;
  });
  await call("Page.navigate", { url }, sessionId);
  await there;
  return {
    async evaluate(expression) {
      const params = { expression, awaitPromise: true, returnByValue: true };
      return (await call("Runtime.evaluate", params, sessionId)).result.value;
    },
  };
}
