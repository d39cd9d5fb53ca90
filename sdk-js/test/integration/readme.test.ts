import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { format } from "node:util";
import { buildSync } from "esbuild";
import { sharedNode, WebSocket } from "./node.js";

const node = sharedNode([], (n) => n.createTopic("orders", { partitions: 4 }));
const dir = mkdtempSync("build/readme-");
after(() => rmSync(dir, { recursive: true }));

const page = readFileSync("README.md", "utf8");
const examples = [...page.matchAll(/^## (.+?)$|^```ts\n(.*?)^```\n+```text\n(.*?)^```/gms)];

let heading = "";
for (const [, title, code, output] of examples) {
  if (title) {
    heading = title;
    continue;
  }
  const name = heading;
  test(`the example of "${name}" prints what it says`, { timeout: 60_000 }, async (t) => {
    const source = join(dir, `${name.replace(/\W+/g, "-")}.ts`);
    const built = source.replace(/ts$/, "mjs");
    writeFileSync(source, code!.replaceAll("http://localhost:8080", node.url));
    buildSync({
      entryPoints: [source],
      outfile: built,
      bundle: true,
      format: "esm",
      platform: "node",
      alias: {
        tidewire: "./src/index.ts",
        "tidewire/full": "./src/full.ts",
        "tidewire/testing": "./src/testing/index.ts",
      },
    });
    const printed: string[] = [];
    t.mock.method(console, "log", (...args: unknown[]) => void printed.push(`${format(...args)}\n`));
    Object.assign(globalThis, { WebSocket });
    await import(pathToFileURL(built).href);
    assert.equal(printed.join(""), output);
  });
}

test("there are examples", () => assert.ok(examples.filter(([, title]) => !title).length >= 6));
