import { buildSync } from "esbuild";

/** A module as a script that makes its exports a global; pages have the SDK as `tidewire`. */
export const browserScript = (contents: string, globalName: string): string => {
  const { outputFiles } = buildSync({
    stdin: { contents, resolveDir: ".", loader: "tsx" },
    bundle: true,
    write: false,
    format: "iife",
    globalName,
    target: "es2022",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
  });
  return `${outputFiles[0]!.text}; globalThis.${globalName} = ${globalName}; 0`;
};

export const browserSdk = (): string => browserScript('export * from "tidewire"', "tidewire");

/** What runs in a page: it reads everything, and publishes when told to. */
export const visitor = `
  globalThis.seen = [];
  globalThis.gaps = [];
  globalThis.unheard = [];
  addEventListener("unhandledrejection", (e) => unheard.push(String(e.reason)));
  let look = () => {};
  globalThis.begin = async (url, options) => {
    globalThis.tide = tidewire.createClient({ url, reconnect: { minDelayMs: 20, maxDelayMs: 200 }, ...options });
    const see = (m) => { seen.push(m.partition + ":" + m.offset); look(); };
    const sub = tide.subscribe("orders", see, { from: "earliest" });
    sub.on("gap", (gap) => gaps.push(gap));
    await sub.ready();
  };
  globalThis.publish = async (tab, from, n) => {
    const all = Array.from({ length: n }, (_, i) => tide.publish("orders", { tab, n: from + i }, { key: tab + i % 5 }));
    await Promise.all(all);
  };
  globalThis.saw = (n) => new Promise((resolve) => {
    look = () => seen.length >= n && resolve(seen.length);
    look();
  });
  0`;
