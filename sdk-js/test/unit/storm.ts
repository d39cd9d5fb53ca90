import type { ServerFrame } from "../../src/protocol/frames.js";
import type { FakeClock, FakeConnection, FakeServer, FakeTopic, Incoming } from "../../src/testing/index.js";

/** What goes wrong between a client and its server, until it is over. */
export interface Storm {
  readonly WebSocket: typeof WebSocket;
  readonly fetch: typeof fetch;
  /** The ways that there are by now carry nothing any more, and do not end. */
  hang(): void;
  /** The same, but only for what comes from the server. */
  mute(): void;
  over(): void;
}

const moment = ["throttled", "leader-unavailable", "not-enough-replicas", "limit-exceeded"];

/** What alone goes wrong, so that nothing else hides what comes of it: a lost way begins everything anew. */
export type Kind = "refusals" | "ways" | "both";

export function storm(clock: FakeClock, server: FakeServer, topic: FakeTopic, kind: Kind): Storm {
  let raging = true;
  const lines = new Set<{ up: boolean; down: boolean }>();
  const kept = new Set<string>(); // by producer, partition and number
  const luck = (chance: number) => raging && kind !== "refusals" && clock.random() < chance;
  const refuses = (chance: number) =>
    raging && kind !== "ways" && clock.random() < (kind === "both" ? chance : Math.min(10 * chance, 0.6));
  const line = () => {
    const way = { up: true, down: true };
    lines.add(way);
    return way;
  };
  const refusal = (code: string): Partial<ServerFrame> => ({
    code,
    detail: "",
    ...(clock.random() < 0.5 ? { retry_after: `${Math.floor(clock.random() * 300)}ms` } : {}),
  });

  server.script((frame: Incoming, connection: FakeConnection) => {
    const { id, op } = frame;
    const no = (code: string): ServerFrame[] => [{ op: "error", id, ...refusal(code) }];
    if (luck(0.01)) return "lost";
    if (luck(0.01)) return "unanswered";
    if (luck(0.005)) {
      connection.send({ op: "closing", reason: "draining", retry_after: "2s" });
      connection.close(4000, "draining");
      return "lost";
    }
    if (op === "publish") {
      const name = `${frame.producer} ${frame.partition} ${frame.sequence}`;
      if (refuses(0.02) && !kept.has(name)) return no("wrong-partition");
      if (refuses(0.04)) return no(moment[Math.floor(clock.random() * moment.length)]!);
      kept.add(name);
      if (refuses(0.02)) {
        topic.append(frame);
        return no("unknown-outcome");
      }
    }
    if ((op === "subscribe" || op === "metadata") && refuses(0.1)) return no(moment[0]!);
    if (op === "hello" && refuses(0.1)) return no("throttled");
    return undefined;
  });

  class Line {
    onopen?: () => void;
    onmessage?: (e: { data: string }) => void;
    onclose?: (e: { code: number; reason: string }) => void;
    readonly #inner: WebSocket;
    readonly #way = line();
    constructor(url: string, protocol: string) {
      const inner = new server.WebSocket(url, protocol);
      this.#inner = inner;
      inner.onopen = () => this.#way.down && this.onopen?.();
      inner.onmessage = ({ data }) => {
        if (this.#way.down) this.onmessage?.({ data });
      };
      inner.onclose = ({ code, reason }) => this.#way.down && this.onclose?.({ code, reason });
    }
    send(text: string) {
      if (this.#way.up && this.#inner.readyState === 1) this.#inner.send(text);
    }
    close(code?: number) {
      this.#inner.close(code);
    }
  }

  /** Waits for what does not come, unless the caller gives up. */
  const never = (signal?: AbortSignal | null) =>
    new Promise<never>((_, reject) => {
      if (signal?.aborted) reject(signal.reason);
      signal?.addEventListener("abort", () => reject(signal.reason));
    });

  /** A body that comes in other pieces, breaks off, or comes no more. */
  function broken(body: ReadableStream<Uint8Array>, way: { down: boolean }): ReadableStream<Uint8Array> {
    const reader = body.getReader();
    return new ReadableStream({
      async pull(controller) {
        const { done, value } = await reader.read();
        if (!way.down) {
          void reader.cancel();
          return never();
        }
        if (luck(0.03)) {
          if (value) controller.enqueue(value.slice(0, Math.floor(clock.random() * value.length)));
          void reader.cancel();
          return luck(0.5) ? controller.close() : controller.error(new TypeError("terminated"));
        }
        if (done) return controller.close();
        const at = Math.floor(clock.random() * value.length);
        for (const part of [value.slice(0, at), value.slice(at)]) if (part.length) controller.enqueue(part);
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }

  const fetch: typeof globalThis.fetch = async (input, init) => {
    const way = line();
    if (luck(0.03)) throw new TypeError("fetch failed");
    if (luck(0.02)) return never(init?.signal);
    if (refuses(0.04)) {
      const headers: Record<string, string> = clock.random() < 0.5 ? { "Retry-After": "1" } : {};
      return new Response(JSON.stringify({ code: "throttled", status: 429 }), { status: 429, headers });
    }
    const answer = await server.fetch(input, init);
    const lost = luck(0.03);
    if (lost || !way.down) void answer.body?.cancel();
    if (lost) throw new TypeError("fetch failed");
    if (!way.down) return never(init?.signal);
    const stream = answer.headers.get("Content-Type") === "text/event-stream";
    return stream ? new Response(broken(answer.body!, way), answer) : answer;
  };

  return {
    WebSocket: Line as unknown as typeof WebSocket,
    fetch,
    hang() {
      for (const way of lines) way.up = way.down = false;
    },
    mute() {
      for (const way of lines) way.down = false;
    },
    over() {
      raging = false;
    },
  };
}
