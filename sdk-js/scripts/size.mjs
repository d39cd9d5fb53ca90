// Holds what a page loads to its budgets: what is built, bundled as a user would, minified
// and gzipped.
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { buildSync } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const budgets = [
  { name: "createClient", code: 'export { createClient } from "tidewire"', bytes: 7960 },
  { name: "everything", code: 'export * from "tidewire/full"', bytes: 15_210 },
  { name: "react", code: 'export * from "tidewire/react"', bytes: 820 },
];

let over = false;
for (const { name, code, bytes } of budgets) {
  const { outputFiles } = buildSync({
    stdin: { contents: code, resolveDir: "." },
    bundle: true,
    minify: true,
    external: ["react"],
    write: false,
    format: "esm",
    target: "es2022",
  });
  const size = gzipSync(outputFiles[0].contents, { level: 9 }).length;
  console.log(`${name}: ${outputFiles[0].contents.length} B minified, ${size} B with gzip -9, of ${bytes} B`);
  over ||= size > bytes;
}
if (over) {
  console.error("the SDK is larger than its budget");
  process.exit(1);
}
