import {
  createContext,
  createElement,
  type ReactElement,
  type ReactNode,
  useCallback,
  useContext,
  useMemo,
  useSyncExternalStore,
} from "react";
import type { Added, FeatureName } from "./client/feature.js";
import {
  type Store,
  type SubscriptionSnapshot,
  subscriptionStore,
  type UseSubscriptionOptions,
} from "./react/subscription.js";
import type { Client, ConnectionState, Published, PublishOptions, TopicMap } from "./types.js";

export type { SubscriptionSnapshot, UseSubscriptionOptions } from "./react/subscription.js";

export interface ConnectionSnapshot {
  readonly state: ConnectionState;
  /** How long until the next try, in ms; while there is a wait. */
  readonly retryInMs?: number;
}

const Context = createContext<Client | undefined>(undefined);

/** Gives the client to all components below. Whoever made the client closes it. */
export function TidewireProvider<T extends TopicMap>(props: { client: Client<T>; children?: ReactNode }): ReactElement {
  return createElement(Context.Provider, { value: props.client as unknown as Client }, props.children);
}

/** The client of the provider above; with its features where they are named. */
export function useClient<T extends TopicMap = TopicMap, N extends FeatureName = never>(): Client<T> & Added<T, N> {
  const client = useContext(Context);
  if (!client) throw new Error("there is no TidewireProvider above");
  return client as unknown as Client<T> & Added<T, N>;
}

const useStore = <S>({ subscribe, snapshot }: Store<S>): S => useSyncExternalStore(subscribe, snapshot, snapshot);

/** The state of the connection, as it changes. */
export function useConnection(): ConnectionSnapshot {
  const client = useClient();
  return useStore(
    useMemo(() => {
      let snapshot: ConnectionSnapshot = { state: client.state };
      return {
        subscribe: (changed) =>
          client.on("state", ({ state, retryInMs }) => {
            snapshot = { state, retryInMs };
            changed();
          }),
        snapshot() {
          if (snapshot.state !== client.state) snapshot = { state: client.state };
          return snapshot;
        },
      } satisfies Store<ConnectionSnapshot>;
    }, [client]),
  );
}

/** Subscribes while the component is there. Other options are another subscription, but for `reduce`. */
export function useSubscription<D = unknown>(
  topic: string,
  opts: UseSubscriptionOptions<D> = {},
): SubscriptionSnapshot<D> {
  const client = useClient();
  // biome-ignore lint/correctness/useExhaustiveDependencies: options that say the same are the same
  const store = useMemo(() => subscriptionStore(client, topic, opts), [client, topic, JSON.stringify(opts)]);
  store.reduce = opts.reduce;
  return useStore(store);
}

/** Publishes to a topic; the function stays the same. */
export function usePublish<D = unknown>(topic: string): (value: D, opts?: PublishOptions) => Promise<Published> {
  const client = useClient();
  return useCallback((value, opts) => client.publish(topic, value, opts), [client, topic]);
}
