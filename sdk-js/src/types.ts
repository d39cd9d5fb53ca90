import type { Clock } from "./client/clock.js";
import type { Feature, FeatureName } from "./client/feature.js";
import type { TidewireError } from "./error.js";

/** Topics and the type of their values; a `*` in a name stands for any run of characters. */
export type TopicMap = Record<string, unknown>;

/** The names of topics that a map allows. */
export type TopicOf<T extends TopicMap> = { [K in keyof T & string]: Expanded<K> }[keyof T & string];
type Expanded<K extends string> = K extends `${infer A}*${infer B}` ? `${A}${string}${Expanded<B>}` : K;

/** The type of a topic's values. */
export type ValueOf<T extends TopicMap, N extends string> = N extends keyof T
  ? T[N]
  : { [K in keyof T & string]: N extends Expanded<K> ? T[K] : never }[keyof T & string];

export type Token = string | { token: string /** Milliseconds since 1970. */; expiresAt?: number };
export type TokenReason = "initial" | "expiring" | "unauthorized";
export type TransportName = "websocket" | "sse" | "poll";
export type ConnectionState = "idle" | "connecting" | "connected" | "reconnecting" | "suspended" | "closed" | "failed";

export interface ClientOptions<N extends FeatureName = never> {
  /** Base URL, as `https://tide.example.com`; several are a failover list, tried in random order. */
  url: string | string[];
  /** A token, or what gets one: asked at connect, before expiry and after a refusal; never twice at once. */
  auth?: Token | ((ctx: { reason: TokenReason; signal: AbortSignal }) => Promise<Token>);
  /** Features, such as `history()`; transports in the order in which they are fallen back on. */
  use?: ReadonlyArray<Feature<N>>;
  /** Full-jitter backoff; what the server asks for comes first. `false`: a lost connection is the end. */
  reconnect?:
    | false
    | {
        /** 250 ms. */
        minDelayMs?: number;
        /** 20 s. */
        maxDelayMs?: number;
        /** Failures in a row; no bound. */
        maxAttempts?: number;
        /** After so long without a connection it is `suspended`; 2 min. */
        suspendAfterMs?: number;
      };
  /** Where the cursors of named subscriptions live, such as `webStorage()`. */
  cursors?: CursorStore;
  /** `lazy` (default) connects on first use, `eager` at once. */
  connect?: "lazy" | "eager";
  /** What publishes do without a connection. Default: up to 1,000 wait for it. */
  offline?: { mode: "buffer" | "reject"; max?: number };
  fetch?: typeof fetch;
  WebSocket?: typeof WebSocket;
  clock?: Clock;
  logger?: (e: { level: "debug" | "info" | "warn" | "error"; msg: string; [k: string]: unknown }) => void;
}

export interface Client<T extends TopicMap = TopicMap> extends AsyncDisposable {
  readonly state: ConnectionState;
  readonly transport: TransportName | undefined;
  connect(opts?: { signal?: AbortSignal }): Promise<void>;
  /** Waits up to `drainMs` (5 s) for what is being published, then ends everything. */
  close(opts?: { drainMs?: number }): Promise<void>;
  on<E extends keyof ClientEvents>(event: E, fn: (e: ClientEvents[E]) => void): () => void;
  publish<N extends TopicOf<T>>(topic: N, value: ValueOf<T, N>, opts?: PublishOptions): Promise<Published>;
  publishBatch<N extends TopicOf<T>>(
    topic: N,
    items: Array<{ value: ValueOf<T, N> } & PublishOptions>,
  ): Promise<Published[]>;
  /** An async iterable, or messages by handler, one after the other. */
  subscribe<N extends TopicOf<T>>(topic: N, opts?: SubscribeOptions): Subscription<ValueOf<T, N>>;
  subscribe<N extends TopicOf<T>>(
    topic: N,
    handler: Handler<ValueOf<T, N>>,
    opts?: SubscribeOptions,
  ): Subscription<ValueOf<T, N>>;
}

/** Added by `history()`. */
export interface HistoryMethods<T extends TopicMap> {
  /** A finite read of the log, from `earliest` unless told otherwise. */
  history<N extends TopicOf<T>>(topic: N, opts?: HistoryOptions): AsyncIterable<Message<ValueOf<T, N>>>;
}

/** Added by `worker()`. */
export interface WorkerMethods<T extends TopicMap> {
  /** A member of a consumer group. What the handler returns from is acknowledged, what it throws at comes again. */
  worker<N extends TopicOf<T>>(
    group: string,
    topic: N,
    handler: (item: WorkItem<ValueOf<T, N>>) => unknown,
    opts?: WorkerOptions,
  ): Worker;
}

/** Added by `requests()`. */
export interface RequestMethods<T extends TopicMap> {
  /**
   * Asks whoever responds to the topic, and resolves to the reply. It is one request however
   * often the connection is lost meanwhile. Rejects with `no-responders` at once where nobody
   * responds, `reply-timeout` where no reply came in time, and `responder` where the answer is
   * that it failed: then `status` is the responder's, and `problem` what it said.
   */
  request<R = unknown>(topic: TopicOf<T>, value: unknown, opts?: RequestOptions): Promise<R>;
  /**
   * A member of a group that answers a topic's requests. What the handler returns is the reply;
   * what it throws is the reply of a failure, with the `status` (500) and `code` that it has.
   */
  respond<N extends TopicOf<T>, Q = ValueOf<T, N>>(
    topic: N,
    handler: (value: Q, request: WorkItem<Q>) => unknown,
    opts?: RespondOptions,
  ): Worker;
}

export interface RequestOptions {
  key?: string;
  headers?: Record<string, string>;
  contentType?: string;
  /** How long the reply may take; 5 s. At most the topic's idempotency window. */
  timeoutMs?: number;
  /** A request that has it already is the same one, and its reply is collected. Drawn if not given. */
  correlationId?: string;
  signal?: AbortSignal;
}

/** A group that is missing is made: shared, and from now on. */
export interface RespondOptions {
  /** Its members share the requests. `responders`. */
  group?: string;
  /** Requests worked on at once, of each key one. 1. */
  concurrency?: number;
  signal?: AbortSignal;
}

export interface ClientEvents {
  state: {
    state: ConnectionState;
    previous: ConnectionState;
    reason?: string;
    code?: number;
    attempt?: number;
    retryInMs?: number;
  };
  connected: { connection: string; transport: TransportName; node?: string };
  error: TidewireError;
}

export type Acks = "none" | "leader" | "all";

export interface PublishOptions {
  key?: string;
  headers?: Record<string, string>;
  /** Default: JSON; `application/octet-stream` for a `Uint8Array`. */
  contentType?: string;
  /** Default: `all`. `none` is neither repeated nor recognised as a repeat. */
  acks?: Acks;
  /** How long to try; 2 min. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

export interface Published {
  topic: string;
  partition: number;
  /** Missing with `acks: "none"`, and of a repeat that is too old to tell. */
  offset?: number;
  timestamp?: string;
  duplicate: boolean;
}

export type From = "latest" | "earliest" | Date | { cursor: string };

export interface SubscribeOptions {
  /** Default: the stored cursor, else `latest`. */
  from?: From;
  /** Name under which the cursor is kept in `ClientOptions.cursors`. */
  name?: string;
  key?: string;
  keys?: string[];
  keyPrefix?: string;
  partition?: number;
  /** How many messages may wait here: a slow reader stops the server, and memory does not grow. 256. */
  credit?: number;
  /** Ends the subscription, without an error. */
  signal?: AbortSignal;
}

export interface HistoryOptions {
  from?: From;
  key?: string;
  keyPrefix?: string;
  partition?: number;
  limit?: number;
  signal?: AbortSignal;
}

export type Handler<V> = (m: Message<V>) => void | Promise<void>;

export interface Message<V = unknown> {
  topic: string;
  partition: number;
  offset: number;
  key?: string;
  headers: Readonly<Record<string, string>>;
  timestamp: string;
  contentType: string;
  value: V;
}

export type SubscriptionState = "subscribing" | "live" | "catching-up" | "paused" | "closed";

export interface SubscriptionEvents {
  /** What was asked for is no longer kept: it goes on at what is. Never without this event. */
  gap: { reason: string; requested: string; earliest: string; end: string };
  /** After each (re)connect: whether nothing is missing. */
  recovered: { recovered: boolean };
  /** All that was kept when it was asked for has been handed out. From anywhere but `latest`: with `history()`, not with `keys`. */
  "caught-up": undefined;
  error: TidewireError;
}

export interface Subscription<V = unknown> extends AsyncIterable<Message<V>>, AsyncDisposable {
  readonly state: SubscriptionState;
  /** Opaque; resumes right after the last message handed out, on any transport. Empty until there is one. */
  readonly cursor: string;
  ready(): Promise<{ recovered: boolean }>;
  seek(from: From): Promise<void>;
  pause(): void;
  resume(): void;
  unsubscribe(): Promise<void>;
  on<E extends keyof SubscriptionEvents>(event: E, fn: (e: SubscriptionEvents[E]) => void): () => void;
}

/** Settings are those of the group where it is new; one that is there must have them. */
export interface WorkerOptions {
  mode?: "exclusive" | "shared";
  from?: "latest" | "earliest" | Date;
  leaseMs?: number;
  maxDeliveries?: number;
  deadLetter?: string;
  /** Records worked on at once, of each key one. 1. */
  concurrency?: number;
  /** What becomes of a record whose handler threw. Default: `nack`. */
  onError?: (thrown: unknown, item: WorkItem) => "nack" | "reject" | { retryInMs: number };
  signal?: AbortSignal;
}

export interface WorkItem<V = unknown> extends Message<V> {
  /** 1 at first. */
  readonly delivery: number;
  readonly leaseUntil: Date;
  /** Aborted when the lease has run out: the record may be in other hands. */
  readonly signal: AbortSignal;
  ack(): Promise<void>;
  nack(opts?: { delayMs?: number; reason?: string }): Promise<void>;
  reject(reason: string): Promise<void>;
  /** Asks for another lease; done by itself while the handler runs. */
  extend(): Promise<void>;
}

export interface WorkerEvents {
  assigned: ReadonlyArray<number>;
  revoked: ReadonlyArray<number>;
  /** A record that could not be settled; or the end of the worker, as when it lacks the right. */
  error: TidewireError;
}

export interface Worker extends AsyncDisposable {
  readonly assigned: ReadonlyArray<number>;
  on<E extends keyof WorkerEvents>(event: E, fn: (e: WorkerEvents[E]) => void): () => void;
  /** Takes nothing new, waits up to `drainMs` (10 s) for what is being worked on, and leaves the group. */
  stop(opts?: { drainMs?: number }): Promise<void>;
}

export interface CursorStore {
  get(name: string): string | null | Promise<string | null>;
  set(name: string, cursor: string): void | Promise<void>;
}
