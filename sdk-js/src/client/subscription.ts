import { asError, errorOf, TidewireError } from "../error.js";
import type { ServerFrame, SubscribeFrame, WireGap } from "../protocol/frames.js";
import { toMessage, type WireMessage } from "../protocol/message.js";
import { type Place, type Position, placeOf, positionText } from "../protocol/position.js";
import type { Handler, Message, SubscribeOptions, Subscription, SubscriptionEvents } from "../types.js";
import { onAbort } from "./abort.js";
import { emitter } from "./emitter.js";
import type { Core } from "./feature.js";
import { cursorKeeper } from "./keeper.js";
import { timers } from "./timers.js";

/** A subscription that has to catch up, as what finds out about it sees it. */
export interface Reader {
  /** What would be asked for to go on where it stands. */
  frame(): Omit<SubscribeFrame, "id">;
  caughtUp(): void;
  /** Calls back after a while, unless another link is in use by then. */
  later(fn: () => void): void;
}
/** What it returns is told of each item, once it is handed out. */
export type CatchUp = (reader: Reader) => (item: Item) => void;

/** What came, in its order: a message; or a frame that says where it stands, or that something is missing. */
export type Item = WireMessage & WireGap & { op?: string };

const defaultCredit = 256;

type Pull = { resolve(r: IteratorResult<Message>): void; reject(e: unknown): void };

export function subscription(
  core: Core,
  topic: string,
  { from, name, key, keys, keyPrefix, partition, credit = defaultCredit, signal }: SubscribeOptions,
  handler?: Handler<unknown>,
): Subscription {
  const { connection } = core;
  const events = emitter<SubscriptionEvents>();
  const kept = cursorKeeper(core, name, (thrown) => events.emit("error", asError(thrown, "handler")));
  const timer = timers(core.clock); // the next try, or check
  let begin = from; // where, until there is a position
  let position: Position | undefined; // after the last message handed out
  let items: Item[] = []; // received, and not handed out
  let owed = 0; // handed out since the server was last given credit for it
  let question: Place | undefined; // asked last; an answer to an earlier one is stale
  let answer: ServerFrame | undefined; // while the server knows it
  let watch: ((item: Item) => void) | undefined;
  let caughtUp = false;
  let paused = false;
  let closed = false;
  let failure: TidewireError | undefined; // to be thrown to who iterates
  let failures = 0;
  const pulls: Pull[] = [];
  const waiting: Array<() => void> = []; // for it to be ready, or closed

  const frame = () => {
    const filter = { key, keys, key_prefix: keyPrefix, partition };
    return { op: "subscribe", topic, ...placeOf(position ?? begin!), ...filter, credit } as const;
  };

  function start(): void {
    if (closed || !begin || connection.state !== "connected") return;
    const mine = frame();
    question = mine;
    connection.ask(mine, (told) => {
      const { op, cursor, recovered } = told;
      if (question !== mine) return leave(told);
      if (op === "error") return refused(told);
      answer = told;
      connection.hear(answer.sub!, receive);
      if (cursor) position ??= { cursor, after: {} };
      failures = 0;
      if (mine.cursor) events.emit("recovered", { recovered: recovered! });
      release();
      if (mine.from === "latest") catchUp();
      else if (!keys) {
        // keys no poll can ask for
        watch = core.catchUp?.({
          frame,
          caughtUp: () => question === mine && catchUp(),
          later: (fn) => question === mine && timer.retry(0, failures++, undefined, fn),
        });
      }
    });
  }

  function catchUp(): void {
    if (!caughtUp) {
      caughtUp = true;
      events.emit("caught-up", undefined);
    }
  }

  function refused(frame: ServerFrame): void {
    const error = errorOf(frame);
    if (error.retryable) {
      down();
      timer.retry(0, failures++, error.retryAfterMs, start);
    } else end(error);
  }

  function receive(frame: ServerFrame): void {
    if (frame.op === "error") {
      if (frame.partition === undefined) return refused(frame);
      return events.emit("error", errorOf(frame)); // of that partition nothing more comes; the others go on
    }
    // A cursor takes the place of the one before: a reader that stands still does not gather them.
    if (frame.op === "cursor" && items.at(-1)?.op === frame.op) items.pop();
    items.push(...((frame.messages ?? [frame]) as unknown as Item[]));
    pump();
  }

  /** Hands out what is there to who asks for it. A cursor counts as soon as all before it is handed out. */
  function pump(): void {
    while (items.length && ((pulls.length && !paused) || items[0]!.op === "cursor")) {
      const item = items.shift()!;
      const { op, cursor, offset } = item;
      if (op) position = { cursor, after: {} };
      else {
        if (position) position.after[item.partition] = offset;
        pulls.shift()!.resolve({ done: false, value: toMessage(item) });
        if (++owed * 2 >= credit && answer) {
          connection.tell({ op: "credit", sub: answer.sub!, add: owed });
          owed = 0;
        }
      }
      if (op === "gap") {
        done();
        events.emit(op, item); // whoever hears of it may seek
      }
      watch?.(item);
    }
    if (!closed || paused) return;
    for (const { resolve, reject } of pulls.splice(0)) {
      if (failure) reject(failure);
      else resolve({ done: true, value: undefined });
      failure = undefined;
    }
  }

  /** What was handed out is done with. */
  function done(): void {
    if (position) kept?.done(positionText(position));
  }

  function pull(): Promise<IteratorResult<Message>> {
    done();
    return new Promise((resolve, reject) => {
      pulls.push({ resolve, reject });
      pump();
    });
  }

  function leave({ sub }: ServerFrame): void {
    if (sub) connection.ask({ op: "unsubscribe", sub }); // else it was refused
  }

  /** Forgets what was not handed out: the server sends it again from the position. */
  function down(): void {
    timer.clear();
    if (answer) connection.hear(answer.sub!);
    question = answer = watch = undefined;
    caughtUp = false;
    items = [];
    owed = 0;
  }

  function release(): void {
    for (const look of waiting.splice(0)) look();
  }

  function end(error?: TidewireError): void {
    if (closed) return;
    const unread = items;
    if (answer) leave(answer);
    down();
    if (error)
      items = unread; // all that came before it
    else paused = false;
    closed = true;
    failure = error;
    unabort();
    part();
    release();
    if (error) events.emit("error", error);
    pump();
  }

  const face: Subscription = {
    get state() {
      if (closed) return "closed";
      if (paused) return "paused";
      return !answer ? "subscribing" : caughtUp ? "live" : "catching-up";
    },
    get cursor() {
      return position ? positionText(position) : "";
    },
    ready: () =>
      new Promise((resolve, reject) => {
        const look = () => {
          if (answer) resolve({ recovered: answer.recovered! });
          else if (closed) reject(failure ?? new TidewireError("closed", "the subscription has ended"));
          else waiting.push(look);
        };
        look();
      }),
    async seek(to) {
      begin = to;
      if (answer) leave(answer);
      down();
      position = undefined;
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
    async unsubscribe() {
      end();
      await kept?.flush();
    },
    on: events.on,
    [Symbol.asyncIterator]: () => ({
      next: pull,
      async return() {
        done();
        await face.unsubscribe();
        return { done: true, value: undefined };
      },
    }),
    [Symbol.asyncDispose]: () => face.unsubscribe(),
  };

  async function run(): Promise<void> {
    begin ??= (await kept?.stored()) ?? "latest";
    if (closed) return;
    connection.connect();
    start();
    while (handler) {
      const { done, value } = await pull();
      if (done) return;
      await handler(value);
    }
  }
  const part = connection.attach({
    up: start,
    down,
    end: (error) => end(error.code === "closed" ? undefined : error),
    finish: face.unsubscribe,
  });
  const unabort = onAbort(signal, face.unsubscribe);
  if (signal?.aborted) end();
  else run().catch((thrown) => end(asError(thrown, "handler"))); // what ended it already is heard of there
  return face;
}
