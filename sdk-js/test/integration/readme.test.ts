import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { format } from "node:util";
import { buildSync } from "esbuild";
import { Window } from "happy-dom";
import { sharedNode, WebSocket } from "./node.js";

const node = sharedNode([], (n) => n.createTopic("orders", { partitions: 4 }));
const dir = mkdtempSync("build/readme-");
after(() => rmSync(dir, { recursive: true }));

const page = readFileSync("README.md", "utf8");
// Of `ts` it says what is printed, of `tsx` what the page shows.
const examples = [...page.matchAll(/^## (.+?)$|^```(tsx?)\n(.*?)^```\n+```(?:text|html)\n(.*?)^```/gms)];

let heading = "";
for (const [, title, kind, code, output] of examples) {
  if (title) {
    heading = title;
    continue;
  }
  const name = heading;
  test(`the example of "${name}" does what it says`, { timeout: 60_000 }, async (t) => {
    const source = join(dir, `${name.replace(/\W+/g, "-")}.${kind}`);
    const built = source.replace(/tsx?$/, "mjs");
    writeFileSync(source, code!.replaceAll("http://localhost:8080", node.url));
    buildSync({
      entryPoints: [source],
      outfile: built,
      bundle: true,
      format: "esm",
      platform: "node",
      jsx: "automatic",
      external: ["react", "react-dom"],
    });
    const printed: string[] = [];
    t.mock.method(console, "log", (...args: unknown[]) => void printed.push(`${format(...args)}\n`));
    Object.assign(globalThis, { WebSocket });
    const load = () => import(pathToFileURL(built).href);
    if (kind === "tsx") return showsAs(output!.trim(), load);
    await load();
    assert.equal(printed.join(""), output);
  });
}

/** Loads what renders a page, and waits for the page to be as it should. */
async function showsAs(html: string, load: () => Promise<{ tide: AsyncDisposable; root: { unmount(): void } }>) {
  const window = new Window();
  window.document.body.innerHTML = '<div id="root"></div>';
  Object.assign(globalThis, { window, document: window.document });
  globalThis.navigator ??= window.navigator as unknown as Navigator;
  const { tide, root } = await load();
  const host = window.document.getElementById("root")!;
  await new Promise<void>((resolve) => {
    const observer = new window.MutationObserver(() => host.innerHTML === html && resolve());
    observer.observe(host, { subtree: true, childList: true, characterData: true, attributes: true });
  });
  root.unmount();
  await tide[Symbol.asyncDispose]();
  await window.happyDOM.close();
}

test("there are examples", () => assert.ok(examples.filter(([, title]) => !title).length >= 6));
