// Runs the tests of a folder (all by default), or of one file, with Node's own
// runner. They are TypeScript, so each is bundled first. Those that look inside have the short
// names of what is built in place of the SDK's own; those of test/integration, which have nodes
// and browsers of their own, run dist itself: npm run build makes it.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { build } from "esbuild";
import { internals } from "./internals.mjs";

const [what = "test", ...flags] = process.argv.slice(2);
const isFile = what.endsWith(".test.ts");
const folder = isFile ? dirname(what) : what;
const files = isFile
  ? [what]
  : readdirSync(folder, { recursive: true })
      .filter((name) => name.endsWith(".test.ts"))
      .map((name) => `${folder}/${name}`);
const outdir = `build/${folder}`;
rmSync(outdir, { recursive: true, force: true });

const dist = {
  name: "dist",
  setup: (build) =>
    build.onResolve({ filter: /^(\.\.\/)+src\// }, ({ path }) => ({
      path: resolve(path.replace(/.*src/, "dist/esm")),
    })),
};

async function bundle(entryPoints, options) {
  await build({
    entryPoints,
    outdir,
    outbase: folder,
    bundle: true,
    platform: "node",
    target: "node20",
    format: "esm",
    packages: "external",
    sourcemap: "inline",
    outExtension: { ".js": ".mjs" },
    logLevel: "warning",
    ...options,
  });
}
const outside = files.filter((name) => name.startsWith("test/integration/"));
await bundle(outside, { plugins: [dist] });
await bundle(
  files.filter((name) => !outside.includes(name)),
  internals,
);
const built = files.map((name) => `build/${name.replace(/\.ts$/, ".mjs")}`);
// Most of a file that needs a node is waiting, so several run at a time on any machine.
const { status } = spawnSync(
  process.execPath,
  ["--enable-source-maps", "--test", "--test-concurrency=4", "--test-reporter=spec", ...flags, ...built],
  { stdio: "inherit" },
);
process.exit(status ?? 1);
