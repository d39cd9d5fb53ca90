import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { createClient } from "../../src/client/client.js";
import type { Feature } from "../../src/client/feature.js";
import type { TidewireError } from "../../src/error.js";
import { history } from "../../src/features/history.js";
import { type FakeClock, type FakeServer, fakeClock, fakeServer } from "../../src/testing/index.js";
import type { Client, ClientOptions, HistoryMethods, Message, TopicMap } from "../../src/types.js";

export interface Stage {
  clock: FakeClock;
  server: FakeServer;
  client: Client & HistoryMethods<TopicMap>;
  /** Each that it came to, without repeats. */
  states: string[];
}

type Options = Partial<Omit<ClientOptions, "use">> & { use?: Array<Feature<"transport">> };

/** A client and its server in virtual time. In the end the client is closed, and no timer may be left. */
export function stage(t: TestContext, { use = [], ...options }: Options = {}, seed = 1): Stage {
  const clock = fakeClock({ seed });
  const server = fakeServer(clock);
  const { url, WebSocket, fetch } = server;
  const client = createClient({ url, WebSocket, fetch, clock, ...options, use: [...use, history()] });
  const states: string[] = [];
  client.on("state", (e) => states.at(-1) !== e.state && states.push(e.state));
  t.after(async () => {
    const closed = client.close({ drainMs: 0 });
    await clock.advance(0);
    await closed;
    await clock.advance(100);
    assert.equal(clock.pending, 0, "a timer is left");
  });
  return { clock, server, client, states };
}

/** What became of a promise, without waiting for it. */
export function watch<V>(promise: Promise<V>): { value?: V; error?: TidewireError; done: boolean } {
  const seen: { value?: V; error?: TidewireError; done: boolean } = { done: false };
  promise.then(
    (value) => Object.assign(seen, { value, done: true }),
    (error) => Object.assign(seen, { error, done: true }),
  );
  return seen;
}

/** Gathers the values of what can be iterated, as it comes. */
export function gather(source: AsyncIterable<Message>): {
  values: unknown[];
  messages: Message[];
  done: boolean;
  error?: TidewireError;
} {
  const seen = {
    values: [] as unknown[],
    messages: [] as Message[],
    done: false,
    error: undefined as TidewireError | undefined,
  };
  const run = async () => {
    for await (const m of source) {
      seen.messages.push(m);
      seen.values.push(m.value);
    }
  };
  run().then(
    () => Object.assign(seen, { done: true }),
    (error) => Object.assign(seen, { done: true, error }),
  );
  return seen;
}
