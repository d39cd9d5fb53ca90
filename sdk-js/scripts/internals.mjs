// Which properties are the SDK's own, so that what is built may have short names in their
// place: those whose names nobody else knows. What the platform, the wire or a public type
// calls by a name keeps it everywhere, so nothing that is seen outside can be renamed.
import { readdirSync, readFileSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { buildSync } from "esbuild";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));

const filesIn = (folder, fits) =>
  readdirSync(folder, { recursive: true })
    .map((name) => `${folder}/${name}`)
    .filter((path) => fits.test(path) && statSync(path).isFile());

/** What `pattern` finds in a file beside its comments. */
const namesIn = (pattern) => (path) =>
  [
    ...readFileSync(path, "utf8")
      .replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, " ")
      .matchAll(pattern),
  ].map(([, name]) => name);

const member = /^ +(?:readonly |get |set )*(\w+)\??[:(<]/gm;
const jsonWord = /"(\w+)"/g;
const declared = /(\w+)\??\s*[:(<]/g;

/** Names with a capital are those of headers and classes. */
const anyName = /^[a-z]/;

function internalNames() {
  const known = new Set([
    ...filesIn("node_modules/@typescript", /\/lib\.[^/]*\.d\.ts$/).flatMap(namesIn(member)), // language and browser
    ...filesIn("../e2e/conformance", /\.json$/).flatMap(namesIn(jsonWord)),
    ...filesIn("src/protocol", /\.ts$/).flatMap(namesIn(declared)),
    ...filesIn("src", /src\/[^/]+\.ts$|src\/(react|testing)\/|clock\.ts$/).flatMap(namesIn(declared)), // public types
  ]);
  if (!known.has("addEventListener")) throw new Error("the types of the platform are not where they were");
  const { mangleCache } = buildSync({
    entryPoints: filesIn("src", /\.ts$/),
    outdir: "nowhere",
    write: false,
    mangleProps: anyName,
    mangleCache: {},
  });
  return Object.keys(mangleCache).filter((name) => !known.has(name));
}

/** Has esbuild give the SDK's own properties short names: the same ones in whatever is built with it. */
export const internals = { mangleProps: new RegExp(`^(${internalNames().join("|")})$`), mangleCache: {} };
