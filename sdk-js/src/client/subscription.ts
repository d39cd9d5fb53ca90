import { fullJitter } from "../core/backoff.js";
import { clearItems, newInbox, putItems, reached, takeItem } from "../core/inbox.js";
import { asError, errorOf, TidewireError } from "../error.js";
import type { ServerFrame, WireGap } from "../protocol/frames.js";
import { toMessage } from "../protocol/message.js";
import { type Place, placeOf, positionText } from "../protocol/position.js";
import type { From, Handler, Message, SubscribeOptions, Subscription, SubscriptionEvents } from "../types.js";
import { onAbort } from "./abort.js";
import { emitter } from "./emitter.js";
import { cursorKeeper } from "./keeper.js";
import type { Subscriptions } from "./subscriptions.js";

/** What has to catch up, as what finds out about it sees it. */
export interface Reader {
  /** What a poll would ask to go on where it stands. */
  query(): Place & { key?: string; key_prefix?: string; partition?: number; limit: number };
  /** Once these offsets are handed out it has caught up. */
  goal(offsets: Map<number, number>): void;
  /** Calls back after a while, unless another link is in use by then. */
  later(fn: () => void): void;
}
export type CatchUp = (reader: Reader, topic: string) => void;

/** A subscription as the client drives it. */
export interface Running {
  start(): void;
  down(): void;
  end(error?: TidewireError): void;
  face: Subscription;
}

const defaultCredit = 256;
const retryMinMs = 100;
const retryMaxMs = 5000;

type Pull = { resolve(r: IteratorResult<Message>): void; reject(e: unknown): void };

export function subscription(
  { core, store, running, receivers }: Subscriptions,
  topic: string,
  { from, name, key, keys, keyPrefix, partition, credit = defaultCredit, signal }: SubscribeOptions,
  handler?: Handler<unknown>,
): Running {
  const { connection, clock } = core;
  const events = emitter<SubscriptionEvents>();
  const kept = cursorKeeper(store, name, clock, (thrown) => events.emit("error", asError(thrown, "handler")));
  const inbox = newInbox();
  let begin: From | undefined = from; // where, until there is a position
  let remote: string | undefined; // the server's name of it
  let asked = 0; // counts what was asked; an answer to an earlier one is stale
  let caughtUp = false;
  let paused = false;
  let closed = false;
  let failure: TidewireError | undefined; // to be thrown to who iterates
  let recovered = false;
  let failures = 0;
  let cancel = () => {}; // the next try, or check
  const pulls: Pull[] = [];
  const waiting: Array<{ resolve(r: { recovered: boolean }): void; reject(e: unknown): void }> = []; // for ready

  const later = (fn: () => void, hintMs?: number) => {
    cancel();
    cancel = clock.after(hintMs ?? fullJitter(failures++, retryMinMs, retryMaxMs, clock.random()), fn);
  };

  function start(): void {
    if (closed || !begin || connection.state !== "connected") return;
    const mine = ++asked;
    const place = placeOf(inbox.position ?? begin);
    const frame = { op: "subscribe" as const, topic, ...place, key, keys, key_prefix: keyPrefix, partition, credit };
    connection.ask([
      [
        frame,
        (answer) => {
          if (mine !== asked) return leave(answer.sub);
          if (answer.op === "error") return refused(errorOf({ ...answer }));
          remote = answer.sub!;
          receivers.set(remote, receive);
          if (answer.cursor) inbox.position ??= { cursor: answer.cursor, after: {} };
          recovered = answer.recovered!;
          failures = 0;
          caughtUp = place.from === "latest";
          if (place.cursor) events.emit("recovered", { recovered });
          for (const w of waiting.splice(0)) w.resolve({ recovered });
          if (caughtUp) events.emit("caught-up", undefined);
          else if (!keys) core.catchUp?.(reader(mine), topic); // keys no poll can ask for
        },
      ],
    ]);
  }

  const reader = (mine: number): Reader => ({
    query: () => ({ ...placeOf(inbox.position ?? begin!), key, key_prefix: keyPrefix, partition, limit: credit }),
    goal(offsets) {
      if (mine !== asked) return;
      inbox.goal = offsets;
      arrive();
    },
    later: (fn) => mine === asked && later(fn),
  });

  function refused(error: TidewireError): void {
    if (error.retryable) later(start, error.retryAfterMs);
    else end(error);
  }

  function receive(frame: ServerFrame): void {
    const { messages = [] } = frame;
    if (messages.length)
      putItems(
        inbox,
        messages.map((message) => ({ message })),
      );
    else if (frame.op === "cursor") putItems(inbox, [{ cursor: frame.cursor! }]);
    else if (frame.op === "gap") putItems(inbox, [{ gap: frame as WireGap }]);
    else if (frame.op === "error") {
      const error = errorOf({ ...frame });
      if (frame.partition === undefined) {
        if (error.retryable) down();
        return refused(error);
      }
      events.emit("error", error); // of that partition nothing more comes; the others go on
    }
    pump();
  }

  /** Hands out what is there to who asks for it. */
  function pump(): void {
    while (pulls.length && !paused) {
      const item = (!closed || failure) && takeItem(inbox);
      if (!item) break;
      if ("message" in item) pulls.shift()!.resolve({ done: false, value: toMessage(item.message) });
      else {
        kept.done(positionText(inbox.position!));
        events.emit("gap", item.gap); // whoever hears of it may seek
      }
      if (remote && inbox.owed * 2 >= credit) {
        connection.tell({ op: "credit", sub: remote, add: inbox.owed });
        inbox.owed = 0;
      }
      arrive();
    }
    if (!closed || paused) return;
    for (const pull of pulls.splice(0)) {
      if (failure) pull.reject(failure);
      else pull.resolve({ done: true, value: undefined });
      failure = undefined;
    }
  }

  function pull(): Promise<IteratorResult<Message>> {
    if (inbox.position) kept.done(positionText(inbox.position)); // what was handed out is done with
    return new Promise((resolve, reject) => {
      pulls.push({ resolve, reject });
      pump();
    });
  }

  function arrive(): void {
    if (caughtUp || !reached(inbox)) return;
    caughtUp = true;
    events.emit("caught-up", undefined);
  }

  function leave(sub: string | undefined): void {
    if (sub) connection.ask([[{ op: "unsubscribe", sub }, () => {}]]);
  }

  function down(): void {
    asked++;
    cancel();
    receivers.delete(remote!);
    remote = undefined;
    caughtUp = false;
    clearItems(inbox);
  }

  function end(error?: TidewireError): void {
    if (closed) return;
    const unread = inbox.items;
    leave(remote);
    down();
    if (error) inbox.items = unread; // all that came before it
    closed = true;
    failure = error;
    unabort();
    for (const w of waiting.splice(0)) w.reject(error ?? new TidewireError("closed", "the subscription has ended"));
    paused &&= !!error;
    running.delete(self);
    if (error) events.emit("error", error);
    pump();
  }

  const face: Subscription = {
    get state() {
      if (closed) return "closed";
      if (paused) return "paused";
      return !remote ? "subscribing" : caughtUp ? "live" : "catching-up";
    },
    get cursor() {
      return inbox.position ? positionText(inbox.position) : "";
    },
    ready() {
      if (remote) return Promise.resolve({ recovered });
      if (closed) return Promise.reject(failure ?? new TidewireError("closed", "the subscription has ended"));
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    async seek(to) {
      begin = to;
      leave(remote);
      down();
      inbox.position = undefined;
      inbox.seen.clear();
      start();
      await face.ready();
    },
    pause() {
      paused = true;
    },
    resume() {
      paused = false;
      pump();
    },
    unsubscribe() {
      end();
      return kept.flush();
    },
    on: events.on,
    [Symbol.asyncIterator]: () => ({
      next: pull,
      async return() {
        if (inbox.position) kept.done(positionText(inbox.position));
        await face.unsubscribe();
        return { done: true, value: undefined };
      },
    }),
    [Symbol.asyncDispose]: () => face.unsubscribe(),
  };
  const self: Running = { start, down, end, face };

  async function handle(): Promise<void> {
    for (;;) {
      const { done, value } = await pull();
      if (done) return;
      await handler!(value);
    }
  }

  async function run(): Promise<void> {
    begin ??= await kept.stored();
    connection.want();
    start();
    if (handler) await handle();
  }
  const unabort = onAbort(signal, () => void face.unsubscribe());
  if (signal?.aborted) end();
  else run().catch((thrown) => end(asError(thrown, "handler"))); // what ended it already is heard of there
  return self;
}
