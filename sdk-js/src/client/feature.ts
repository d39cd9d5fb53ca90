import type { LinkOptions, Transport } from "../transport/transport.js";
import type { CursorStore, HistoryMethods, RequestMethods, TopicMap, WorkerMethods } from "../types.js";
import type { Connection } from "./connection.js";
import type { CatchUp } from "./subscription.js";

/** What a client is made of, as its features see it. */
export interface Core extends LinkOptions {
  readonly connection: Connection;
  /** Its addresses; `url` is the one in use. */
  readonly bases: readonly string[];
  /** The ways to the server, the best one first. */
  readonly transports: Transport[];
  readonly cursors?: CursorStore;
  /** Throws once the client is closed, or has failed. */
  admit(): void;
  catchUp?: CatchUp;
}

/** The methods that features add to a client, by the feature's name. */
export interface FeatureMethods<T extends TopicMap> {
  history: HistoryMethods<T>;
  worker: WorkerMethods<T>;
  requests: RequestMethods<T>;
  transport: unknown;
}
export type FeatureName = keyof FeatureMethods<TopicMap>;

/**
 * Something that a client can do beside publishing and subscribing over WebSocket. What is not
 * used is not bundled. Only the functions of this package make them.
 */
export interface Feature<N extends FeatureName = FeatureName> {
  readonly name: N;
  /** Another way to the server, tried after those before it. */
  readonly transport?: Transport;
  /** @internal */
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
