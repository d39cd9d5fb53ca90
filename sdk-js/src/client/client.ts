import { TidewireError } from "../error.js";
import { websocket } from "../transport/websocket.js";
import type {
  Client,
  ClientEvents,
  ClientOptions,
  Handler,
  SubscribeOptions,
  Subscription,
  TopicMap,
} from "../types.js";
import { onAbort } from "./abort.js";
import { systemClock } from "./clock.js";
import { connection } from "./connection.js";
import { emitter } from "./emitter.js";
import type { Added, Core, Feature, FeatureName } from "./feature.js";
import { publisher } from "./publisher.js";
import { subscriptions } from "./subscriptions.js";
import { tokens } from "./tokens.js";
import { watchNetwork } from "./wake.js";

const defaultDrainMs = 5000;

export function createClient<T extends TopicMap = TopicMap, N extends FeatureName = never>(
  options: ClientOptions<N>,
): Client<T> & Added<T, N> {
  const { clock = systemClock, reconnect, logger, use = [] } = options;
  const events = emitter<ClientEvents>();
  const life = new AbortController();
  const caller = tokens(options.auth, clock, life.signal);

  const bases = [options.url].flat().map((url) => url.replace(/^ws/, "http").replace(/\/+$/, ""));
  let base = Math.floor(clock.random() * bases.length);
  const calls = {
    clock,
    tokens: caller,
    fetch: options.fetch ?? ((...args: Parameters<typeof fetch>) => fetch(...args)),
  };
  const { WebSocket = globalThis.WebSocket } = options;
  const further = (use as readonly Feature[]).flatMap(({ transport }) => transport ?? []);
  const link = { ...calls, WebSocket };
  const sharing = { key: [...bases].sort().join(), link, signal: life.signal };
  const wrapped = (use as readonly Feature[]).reduce((t, feature) => feature.wrap?.(t, sharing) ?? t, websocket);
  const transports = WebSocket ? [wrapped, ...further] : further;
  if (!transports.length) throw new TypeError("there is no WebSocket here: give one in the options");
  const conn = connection({
    transports,
    policy: {
      minDelayMs: 250,
      maxDelayMs: 20_000,
      maxAttempts: reconnect === false ? 0 : Infinity,
      suspendAfterMs: 120_000,
      ...reconnect,
      transports: transports.length,
    },
    tokens: caller,
    events,
    link,
    base: () => bases[base]!,
    nextBase() {
      // Any other one: in turn, it could be the same one for ever that a transport of several is tried with.
      base = (base + 1 + Math.floor(clock.random() * (bases.length - 1))) % bases.length;
    },
  });
  const sending = publisher(conn, clock, options.offline);
  const core: Core = {
    ...calls,
    signal: life.signal,
    connection: conn,
    base: () => bases[base]!,
    admit,
    closers: new Set(),
  };
  const reading = subscriptions(core, options.cursors);
  watchNetwork(conn.wake, life.signal);
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
    if (conn.state === "failed") throw conn.failure;
  }

  function connect(signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      refuseClosed();
      signal?.throwIfAborted();
      const finish = (done: () => void) => {
        off();
        unabort();
        done();
      };
      const look = () => {
        if (conn.state === "connected") finish(resolve);
        else if (conn.state === "failed" || conn.state === "closed") finish(() => reject(conn.failure));
      };
      const off = events.on("state", look);
      const unabort = onAbort(signal, () => finish(() => reject(signal!.reason)));
      conn.connect();
      look();
    });
  }

  async function close(drainMs: number): Promise<void> {
    await Promise.all([reading.close(), ...[...core.closers].map((end) => end())]);
    let cancel = () => {};
    const patience = new Promise<void>((resolve) => {
      cancel = clock.after(drainMs, resolve);
    });
    await Promise.race([sending.settled(), patience]);
    cancel();
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
    connect: (opts) => connect(opts?.signal),
    close: (opts) => (closing ??= close(opts?.drainMs ?? defaultDrainMs)),
    on: events.on,
    async publish(topic, value, opts) {
      admit();
      return sending.publish(topic, value, opts);
    },
    async publishBatch(topic, items) {
      admit();
      return Promise.all(items.map(({ value, ...opts }) => sending.publish(topic, value, opts)));
    },
    subscribe(topic: string, first: SubscribeOptions | Handler<never> = {}, second: SubscribeOptions = {}) {
      admit();
      const [handler, opts] = typeof first === "function" ? [first, second] : [undefined, first];
      return reading.subscribe(topic, opts, handler as Handler<unknown>) as Subscription<never>;
    },
    [Symbol.asyncDispose]: () => client.close(),
  };
  if (options.connect === "eager") conn.want();
  return Object.assign(client, ...(use as readonly Feature[]).map((feature) => feature.install?.(core)));
}
