import { TidewireError } from "../error.js";
import { websocket } from "../transport/websocket.js";
import type { Client, ClientEvents, ClientOptions, Handler, SubscribeOptions, TopicMap } from "../types.js";
import { onAbort } from "./abort.js";
import { systemClock } from "./clock.js";
import { connection } from "./connection.js";
import { emitter } from "./emitter.js";
import type { Added, Core, Feature, FeatureName } from "./feature.js";
import { publisher } from "./publisher.js";
import { subscription } from "./subscription.js";
import { tokens } from "./tokens.js";
import { watchNetwork } from "./wake.js";

const defaultDrainMs = 5000;

export function createClient<T extends TopicMap = TopicMap, N extends FeatureName = never>(
  options: ClientOptions<N>,
): Client<T> & Added<T, N> {
  const { clock = systemClock, reconnect, logger } = options;
  const { fetch = globalThis.fetch, WebSocket = globalThis.WebSocket } = options;
  const use = (options.use ?? []) as readonly Feature[];
  const events = emitter<ClientEvents>();
  const life = new AbortController();
  const { signal } = life;
  const bases = [options.url].flat().map((url) => url.replace(/^ws/, "http").replace(/\/+$/, ""));
  const transports = use.flatMap(({ transport }) => transport ?? []);
  if (WebSocket) transports.unshift(websocket);
  if (!transports.length) throw new TypeError("no WebSocket: give one in the options");

  const link = {
    bases,
    url: bases[Math.floor(clock.random() * bases.length)]!,
    clock,
    fetch,
    WebSocket,
    signal,
    events,
    transports,
    tokens: tokens(options.auth, clock, signal),
    policy: {
      minDelayMs: 250,
      maxDelayMs: 20_000,
      maxAttempts: reconnect === false ? 0 : Infinity,
      suspendAfterMs: 120_000,
      ...reconnect,
    },
  };
  const conn = connection(link);
  const core: Core = Object.assign(link, {
    connection: conn,
    cursors: options.cursors,
    admit,
  });
  const sending = publisher(core, options.offline);
  watchNetwork(conn.wake, signal);
  let closing: Promise<void> | undefined;

  if (logger) {
    events.on("state", (e) => logger({ level: "info", msg: "state", ...e }));
    events.on("error", (error) => logger({ level: "warn", msg: error.message, error }));
  }

  function refuseClosed(): void {
    if (closing) throw new TidewireError("closed", "the client is closed");
  }

  /** Throws what keeps the client from doing anything more. */
  function admit(): void {
    refuseClosed();
    if (conn.failure) throw conn.failure;
  }

  async function close(drainMs: number): Promise<void> {
    await conn.finish();
    await new Promise<void>((resolve) => {
      const cancel = clock.after(drainMs, resolve);
      sending.settled(() => {
        cancel();
        resolve();
      });
    });
    conn.close();
    life.abort(conn.failure);
  }

  const client: Client<Record<string, never>> = {
    get state() {
      return conn.state;
    },
    get transport() {
      return conn.transport;
    },
    connect: ({ signal } = {}) =>
      new Promise((resolve, reject) => {
        refuseClosed();
        signal?.throwIfAborted();
        const finish = (settle: (value: never) => void, value?: unknown) => {
          part();
          unabort();
          settle(value as never);
        };
        const part = conn.attach({ up: () => finish(resolve), end: (error) => finish(reject, error) });
        const unabort = onAbort(signal, () => finish(reject, signal!.reason));
        conn.connect();
        if (conn.state === "connected") finish(resolve);
      }),
    close: ({ drainMs = defaultDrainMs } = {}) => (closing ??= close(drainMs)),
    on: events.on,
    async publish(topic, value, opts) {
      admit();
      return sending.publish(topic, value, opts);
    },
    async publishBatch(topic, items) {
      admit();
      return Promise.all(items.map(({ value, ...opts }) => sending.publish(topic, value, opts)));
    },
    subscribe(topic: string, first?: SubscribeOptions | Handler<never>, second?: SubscribeOptions) {
      admit();
      const [handler, opts = {}] = typeof first === "function" ? [first, second] : [undefined, first];
      return subscription(core, topic, opts, handler as Handler<unknown>) as never;
    },
    [Symbol.asyncDispose]: () => client.close(),
  };
  Object.assign(client, ...use.map((feature) => feature.install?.(core)));
  if (options.connect === "eager") conn.connect();
  return client as never;
}
