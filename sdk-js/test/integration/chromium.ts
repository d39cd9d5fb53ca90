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
  /** Closes it as its user does. */
  close(): Promise<void>;
  /** Its process is killed. */
  crash(): Promise<void>;
  /** Nothing runs in it any more, as in one that was in the background for long; or again. */
  freeze(frozen: boolean): Promise<void>;
}

/** A browser whose pages share what those of one user do. */
export interface Browser {
  open(url: string): Promise<Page>;
}

interface Answer {
  id?: number;
  method?: string;
  sessionId?: string;
  result: { sessionId: string; targetId: string; result: { value: never }; exceptionDetails?: unknown };
  error?: { message: string };
}

/** Opens a page in a browser of its own; undefined, and the test skipped aloud, where there is no browser. */
export const openPage = async (t: TestContext, url: string): Promise<Page | undefined> =>
  (await openBrowser(t))?.open(url);

/** Starts a browser; undefined, and the test skipped aloud, where there is none. */
export async function openBrowser(t: TestContext): Promise<Browser | undefined> {
  const binary = places.find(existsSync);
  if (!binary) return void t.skip("NOT TESTED: chromium is missing");
  const profile = mkdtempSync(join(tmpdir(), "tidewire-sdk-browser-"));
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"];
  // Pages in the background are not to be slower than others: a test that wants that freezes them.
  const awake = ["--disable-renderer-backgrounding", "--disable-background-timer-throttling"];
  const args = [...flags, ...awake, `--user-data-dir=${profile}`, "--remote-debugging-port=0", "about:blank"];
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
  browser.stderr.resume(); // what nobody reads would stop it
  const socket = new WebSocket(address);
  await once(socket, "open");
  t.after(() => socket.terminate());
  const waiting = new Map<number, (answer: Answer) => void>();
  const events = new Map<string, () => void>(); // by session and method
  socket.on("message", (data) => {
    const answer = JSON.parse(String(data)) as Answer;
    waiting.get(answer.id!)?.(answer);
    waiting.delete(answer.id!);
    events.get(`${answer.sessionId} ${answer.method}`)?.();
  });
  let id = 0;
  const call = async (method: string, params: object, sessionId?: string) => {
    const mine = ++id;
    socket.send(JSON.stringify({ id: mine, method, params, sessionId }));
    const { result, error } = await new Promise<Answer>((resolve) => waiting.set(mine, resolve));
    if (error || result.exceptionDetails) throw new Error(JSON.stringify(error ?? result.exceptionDetails));
    return result;
  };
  return {
    async open(url) {
      const { targetId } = await call("Target.createTarget", { url: "about:blank" });
      const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
      const happened = (method: string) =>
        new Promise<void>((resolve) => events.set(`${sessionId} ${method}`, resolve));
      await call("Page.enable", {}, sessionId);
      const there = happened("Page.loadEventFired");
      await call("Page.navigate", { url }, sessionId);
      await there;
      return {
        async evaluate(expression) {
          const params = { expression, awaitPromise: true, returnByValue: true };
          return (await call("Runtime.evaluate", params, sessionId)).result.value;
        },
        async close() {
          await call("Page.close", {}, sessionId);
        },
        async freeze(frozen) {
          await call("Page.setWebLifecycleState", { state: frozen ? "frozen" : "active" }, sessionId);
        },
        async crash() {
          const crashed = happened("Inspector.targetCrashed");
          await call("Inspector.enable", {}, sessionId);
          call("Page.crash", {}, sessionId).catch(() => {}); // nobody is left to answer it
          await crashed;
        },
      };
    },
  };
}
