import type { TidewireError } from "../error.js";
import type { Client, Message, SubscribeOptions, Subscription, SubscriptionState } from "../types.js";

export interface UseSubscriptionOptions<D> extends Omit<SubscribeOptions, "signal"> {
  /** How many messages there are at most, the last ones; 100. */
  keep?: number;
  /** What the messages are once another one has come; the last `keep` unless told otherwise. */
  reduce?: (messages: readonly Message<D>[], message: Message<D>) => readonly Message<D>[];
}

export interface SubscriptionSnapshot<D> {
  readonly messages: readonly Message<D>[];
  readonly last?: Message<D>;
  readonly status: SubscriptionState;
  readonly error?: TidewireError;
}

/** What `useSyncExternalStore` reads. */
export interface Store<S> {
  subscribe(changed: () => void): () => void;
  snapshot(): S;
}

export interface SubscriptionStore<D> extends Store<SubscriptionSnapshot<D>> {
  /** The one of the latest render. */
  reduce?: UseSubscriptionOptions<D>["reduce"];
}

const defaultKeep = 100;

/** A subscription while somebody looks at it. Whoever looks again goes on where it was. */
export function subscriptionStore<D>(
  client: Client,
  topic: string,
  { keep = defaultKeep, reduce, ...opts }: UseSubscriptionOptions<D>,
): SubscriptionStore<D> {
  let snapshot: SubscriptionSnapshot<D> = { messages: [], status: "subscribing" };
  let from = opts.from;
  let came: Message<D>[] = []; // and is not in the snapshot yet

  function take(status: SubscriptionState, error = snapshot.error): void {
    const all = self.reduce
      ? came.reduce(self.reduce, snapshot.messages)
      : [...snapshot.messages, ...came].slice(-keep);
    snapshot = { messages: all, last: came.at(-1) ?? snapshot.last, status, error };
    came = [];
  }

  function look(changed: () => void): () => void {
    let looking = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let sub: Subscription<unknown>;
    /** All that comes in one go is shown in one render. */
    const soon = () => {
      if (looking)
        timer ??= setTimeout(() => {
          timer = undefined;
          take(sub.state);
          changed();
        });
    };
    const off = client.on("state", soon);
    const fail = (error: TidewireError) => {
      take("closed", error);
      changed();
    };
    try {
      sub = client.subscribe(
        topic,
        (m) => {
          came.push(m as Message<D>);
          soon();
        },
        { ...opts, from },
      );
    } catch (error) {
      off();
      fail(error as TidewireError); // the client is closed, or has failed
      return () => {};
    }
    sub.on("caught-up", soon);
    sub.on("recovered", soon);
    sub.on("error", (error) => {
      take(sub.state, error);
      soon();
    });
    sub.ready().then(soon, () => {}); // its error is heard of above
    return () => {
      off();
      if (sub.cursor) from = { cursor: sub.cursor };
      void sub.unsubscribe();
      clearTimeout(timer);
      looking = false;
      take("subscribing");
    };
  }
  const self: SubscriptionStore<D> = { subscribe: look, snapshot: () => snapshot, reduce };
  return self;
}
