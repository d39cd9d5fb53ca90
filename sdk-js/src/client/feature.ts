import type { LinkOptions, Transport } from "../transport/transport.js";
import type { HistoryMethods, RequestMethods, TopicMap, WorkerMethods } from "../types.js";
import type { Clock } from "./clock.js";
import type { Connection } from "./connection.js";
import type { CatchUp } from "./subscription.js";
import type { Tokens } from "./tokens.js";

/** What a client is made of, as its features see it. */
export interface Core {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly tokens: Tokens;
  readonly fetch: typeof fetch;
  /** The end of the client. */
  readonly signal: AbortSignal;
  base(): string;
  /** Throws once the client is closed, or has failed. */
  admit(): void;
  catchUp?: CatchUp;
  /** What comes to its end before the client does. */
  readonly closers: Set<() => Promise<unknown>>;
}

/** What a wrapped transport is told of its client. */
export interface Sharing {
  /** Clients that may share something with it have the same one. */
  readonly key: string;
  readonly link: Omit<LinkOptions, "url">;
  /** The end of the client. */
  readonly signal: AbortSignal;
}

/** The methods that features add to a client, by the feature's name. */
export interface FeatureMethods<T extends TopicMap> {
  history: HistoryMethods<T>;
  worker: WorkerMethods<T>;
  requests: RequestMethods<T>;
  transport: unknown;
}
export type FeatureName = keyof FeatureMethods<TopicMap>;

/** Something that a client can do beside publishing and subscribing over WebSocket. What is not used is not bundled. */
export interface Feature<N extends FeatureName = FeatureName> {
  readonly name: N;
  /** Another way to the server, tried after those before it. */
  readonly transport?: Transport;
  /** Makes another way to the server of the WebSocket. */
  wrap?(websocket: Transport, sharing: Sharing): Transport;
  install?(core: Core): FeatureMethods<Record<string, never>>[N];
}

/** The methods of all features of a client. */
export type Added<T extends TopicMap, N extends FeatureName> = (
  N extends FeatureName
    ? (methods: FeatureMethods<T>[N]) => void
    : never
) extends (methods: infer All) => void
  ? All
  : never;
