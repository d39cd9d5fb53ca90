// Builds assets/, which is committed so that Go alone makes the whole binary. With
// --check it writes nothing, and fails where assets/ is not what the source makes.
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

/** What all scripts together may weigh, minified and gzipped. */
const budgetBytes = 70_000;

function bundle(entry) {
  const { outputFiles } = buildSync({
    entryPoints: [entry],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    jsxImportSource: "preact",
    legalComments: "none",
    charset: "utf8",
    logLevel: "warning",
  });
  return Buffer.from(outputFiles[0].contents);
}

/** The name of a file that never changes: browsers keep it for good. */
function hashed(name, contents) {
  const [stem, ending] = name.split(".");
  return `${stem}-${createHash("sha256").update(contents).digest("hex").slice(0, 12)}.${ending}`;
}

const script = bundle("src/main.tsx");
const sheet = bundle("src/styles/app.css");
const names = { "app.js": hashed("app.js", script), "app.css": hashed("app.css", sheet) };
const page = readFileSync("src/index.html", "utf8").replace(
  /\/assets\/(app\.\w+)/g,
  (_, name) => `/assets/${names[name]}`,
);
const files = {
  "index.html": Buffer.from(page),
  "icon.svg": readFileSync("src/icon.svg"),
  "style.css": bundle("src/styles/base.css"), // also of the pages of problems, so under one name
  [names["app.js"]]: script,
  [names["app.css"]]: sheet,
};

const size = gzipSync(script, { level: 9 }).length;
console.log(`the dashboard: ${script.length} B minified, ${size} B with gzip -9, of ${budgetBytes} B`);
if (size > budgetBytes) throw new Error("the dashboard is larger than its budget");

if (process.argv.includes("--check")) {
  const there = readdirSync("assets").sort();
  const stale = Object.keys(files).filter(
    (name) => !there.includes(name) || !readFileSync(`assets/${name}`).equals(files[name]),
  );
  const left = there.filter((name) => !(name in files));
  if (stale.length + left.length) {
    console.error(`web/assets is not what its source makes: run make dashboard (${[...stale, ...left].join(", ")})`);
    process.exit(1);
  }
} else {
  rmSync("assets", { recursive: true, force: true });
  mkdirSync("assets");
  for (const [name, contents] of Object.entries(files)) writeFileSync(`assets/${name}`, contents);
}
