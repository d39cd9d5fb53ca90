// Runs an example: a node with a data folder of its own, and the example's page from an
// origin of its own, which the node allows. A node that dies is started again, so
// that killing it is part of the fun.
//
//   node examples/run.mjs chat [--data DIR] [--port N]
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = fileURLToPath(new URL("..", import.meta.url));
const require = createRequire(join(root, "sdk-js/"));
const { buildSync } = require("esbuild");

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { data: { type: "string" }, port: { type: "string", default: "0" } },
});
const name = positionals[0] ?? "chat";
const folder = join(root, "examples", name);
const data = values.data ?? join(root, "tidewire-data/examples", name);
const binary = process.env.TEST_TIDEWIRE_BIN ?? join(root, "bin/tidewire");

/** An example's script with the SDK in it, which it knows as `tidewire`. */
function bundle(file, options) {
  const { outputFiles } = buildSync({
    entryPoints: [join(folder, file)],
    bundle: true,
    write: false,
    alias: { tidewire: join(root, "sdk-js/src/index.ts") },
    nodePaths: [join(root, "sdk-js/node_modules")],
    target: "es2022",
    logLevel: "warning",
    ...options,
  });
  return outputFiles[0].text;
}

let http = "127.0.0.1:0"; // the same again, once it is known
let node;
let over = false;

/** Starts the node, and again whenever it ends. */
async function keepNode(origin) {
  const any = "127.0.0.1:0";
  const listeners = ["--http", http, "--rpc", any, "--raft", any, "--gossip", any];
  const args = [
    "serve",
    "--data",
    join(data, "node"),
    ...listeners,
    "--allowed-origins",
    origin,
    "--log-level",
    "error",
  ];
  node = spawn(binary, args, { stdio: ["ignore", "pipe", "inherit"] });
  node.once("exit", () => over || keepNode(origin));
  for await (const line of createInterface({ input: node.stdout })) {
    if (line.startsWith("listening http=")) http = line.slice("listening http=".length);
    if (line.startsWith("ready in ")) break;
  }
  console.log(`node http://${http} pid ${node.pid}`);
}

async function stop() {
  over = true;
  const ended = once(node, "exit");
  if (node.exitCode === null && node.kill()) await ended;
  process.exit(0);
}

mkdirSync(data, { recursive: true });
const files = {}; // what the page's origin has, by path
const types = { html: "text/html", css: "text/css", js: "text/javascript" };
const page = createServer((request, answer) => {
  const path = request.url === "/" ? "/index.html" : request.url;
  const type = types[path.split(".").at(-1)];
  answer.writeHead(files[path] ? 200 : 404, { "Content-Type": `${type}; charset=utf-8` }).end(files[path]);
});
page.listen(Number(values.port), "localhost");
await once(page, "listening");
const origin = `http://localhost:${page.address().port}`;
await keepNode(origin);
process.once("SIGINT", stop).once("SIGTERM", stop);

for (const topic of JSON.parse(readFileSync(join(folder, "topics.json"), "utf8"))) {
  const body = JSON.stringify(topic);
  const made = await fetch(`http://${http}/topics/`, {
    method: "POST",
    body,
    headers: { "Content-Type": "application/json" },
  });
  if (!made.ok) throw new Error(await made.text());
}

const define = { NODE: JSON.stringify(`http://${http}`) };
files["/index.html"] = readFileSync(join(folder, "index.html"));
files["/style.css"] = readFileSync(join(root, "examples/style.css"));
files["/page.js"] = bundle("page.ts", { define, format: "esm" });
if (existsSync(join(folder, "fleet.ts"))) {
  const script = bundle("fleet.ts", { define, format: "cjs", platform: "node" });
  new Function("require", script)(require);
}
console.log(`open ${origin}`);
