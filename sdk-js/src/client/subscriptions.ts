import type { ServerFrame } from "../protocol/frames.js";
import type { CursorStore, Handler, SubscribeOptions, Subscription } from "../types.js";
import type { Core } from "./feature.js";
import { type Running, subscription } from "./subscription.js";

/** All subscriptions of a client. */
export interface Subscriptions {
  readonly core: Core;
  readonly store?: CursorStore;
  readonly running: Set<Running>;
  /** What takes a subscription's frames, by the server's name of it. */
  readonly receivers: Map<string, (frame: ServerFrame) => void>;
  subscribe(topic: string, opts: SubscribeOptions, handler?: Handler<unknown>): Subscription;
  /** Ends them all, once their cursors are stored. */
  close(): Promise<unknown>;
}

/** Begins subscriptions again on each link, and leads frames to the one they are for. */
export function subscriptions(core: Core, store?: CursorStore): Subscriptions {
  const running = new Set<Running>();
  const all: Subscriptions = {
    core,
    store,
    running,
    receivers: new Map(),
    subscribe(topic, opts, handler) {
      const sub = subscription(all, topic, opts, handler);
      if (sub.face.state !== "closed") running.add(sub);
      return sub.face;
    },
    close: () => Promise.all([...running].map((sub) => sub.face.unsubscribe())),
  };
  core.connection.join({
    up() {
      for (const sub of running) sub.start();
    },
    down() {
      for (const sub of running) sub.down();
    },
    push: (frame) => all.receivers.get(frame.sub!)?.(frame),
    end(error) {
      for (const sub of running) sub.end(error.code === "closed" ? undefined : error);
    },
  });
  return all;
}
