import type { WireMessage } from "../protocol/message.js";
import type { Place } from "../protocol/position.js";
import type { FakeClock } from "./clock.js";
import type { FakeRecord, FakeTopic, Filter } from "./log.js";

export interface FakeHttp {
  clock: FakeClock;
  topics: Map<string, FakeTopic>;
  isDown(): boolean;
  /** Something was published. */
  changed(): void;
  /** Calls back when something was. */
  watch(fn: () => void): () => void;
}

const json = (body: unknown, status = 200) => new Response(JSON.stringify(body), { status });
const problem = (status: number, code: string, more = {}) => json({ code, status, detail: code, ...more }, status);

/** The HTTP side of a fake server: polls, streams of events, lines and metadata. */
export function fakeFetch(http: FakeHttp): typeof fetch {
  return async (input, init) => {
    await new Promise<void>((resolve) => http.clock.after(1, resolve));
    init?.signal?.throwIfAborted();
    if (http.isDown()) throw new TypeError("fetch failed");
    const url = new URL(String(input));
    const [, root, name, leaf] = url.pathname.split("/");
    if (root === "readyz") return json({ status: "ready" });
    const topic = http.topics.get(name!);
    if (!topic) return problem(404, "topic-not-found");
    if (leaf === "metadata") return json({ layout: topic.layout });
    if (init?.method === "POST") return publishLines(http, topic, url, init);
    return leaf === "events" ? events(http, topic, url, init?.signal) : page(http, topic, url, init?.signal);
  };
}

function publishLines(http: FakeHttp, topic: FakeTopic, url: URL, init: RequestInit): Response {
  const headers = new Headers(init.headers);
  const producer = headers.get("Tidewire-Producer") ?? undefined;
  const first = Number(headers.get("Tidewire-Sequence"));
  const partition = Number(url.searchParams.get("partition"));
  const answers = String(init.body)
    .trimEnd()
    .split("\n")
    .map((line, i) => {
      const record = JSON.parse(line) as FakeRecord;
      return topic.append({ ...record, partition, producer, sequence: producer && first + i } as FakeRecord);
    });
  http.changed();
  return new Response(answers.map((a) => JSON.stringify(a)).join("\n"), { status: 207 });
}

function query(url: URL): { place: Place; filter: Filter } {
  const get = (name: string) => url.searchParams.get(name) ?? undefined;
  const pairs = get("after")
    ?.split(",")
    .map((pair) => pair.split(":").map(Number) as [number, number]);
  return {
    place: { from: get("from"), cursor: get("cursor"), after: pairs && Object.fromEntries(pairs) },
    filter: {
      key: get("key"),
      key_prefix: get("key_prefix"),
      partition: get("partition") === undefined ? undefined : Number(get("partition")),
    },
  };
}

async function page(http: FakeHttp, topic: FakeTopic, url: URL, signal?: AbortSignal | null): Promise<Response> {
  const { place, filter } = query(url);
  const { next, gap } = topic.resolve(place.from || place.cursor ? place : { from: "earliest" });
  if (gap) return problem(410, "cursor-expired", gap);
  const limit = Number(url.searchParams.get("limit") ?? 100);
  const waitMs = Number.parseFloat(url.searchParams.get("wait") ?? "0") * 1000;
  let messages = topic.read(next, filter, limit);
  if (!messages.length && waitMs) {
    await new Promise<void>((resolve) => {
      const cancel = http.clock.after(waitMs, done);
      const forget = http.watch(done);
      signal?.addEventListener("abort", done, { once: true });
      function done() {
        cancel();
        forget();
        resolve();
      }
    });
    signal?.throwIfAborted();
    messages = topic.read(next, filter, limit);
  }
  const end = topic.read([...next], filter, 1).length === 0;
  return json({ messages, cursor: topic.cursor(next), end });
}

function events(http: FakeHttp, topic: FakeTopic, url: URL, signal?: AbortSignal | null): Response {
  const { place, filter } = query(url);
  const { next, gap } = topic.resolve(place);
  const encoder = new TextEncoder();
  let stop = () => {};
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      const write = (event: string) => controller.enqueue(encoder.encode(event));
      const push = () => {
        const found: WireMessage[] = topic.read(next, filter, 1000);
        const spelled = found.map((m) => `event: message\ndata: ${JSON.stringify(m)}\n\n`).join("");
        if (found.length) write(`${spelled}id: ${topic.cursor(next)}\n\n`);
      };
      const forget = http.watch(push);
      stop = () => {
        forget();
        cancel();
      };
      let cancel = () => {};
      const comment = () => {
        write(":\n\n");
        cancel = http.clock.after(15_000, comment);
      };
      cancel = http.clock.after(15_000, comment);
      signal?.addEventListener("abort", () => {
        stop();
        controller.error(signal.reason);
      });
      if (gap) write(`event: gap\nid: ${gap.cursor}\ndata: ${JSON.stringify(gap)}\n\n`);
      else write(`id: ${topic.cursor(next)}\n\n`);
      push();
    },
    cancel: () => stop(),
  });
  return new Response(body, { headers: { "Content-Type": "text/event-stream" } });
}
