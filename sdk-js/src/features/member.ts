import { onAbort } from "../client/abort.js";
import { emitter } from "../client/emitter.js";
import type { Core } from "../client/feature.js";
import { timers } from "../client/timers.js";
import { startable } from "../core/hand.js";
import { asError, errorOf, TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";
import { groupSettings } from "../protocol/groupsettings.js";
import type { WireMessage } from "../protocol/message.js";
import type { Worker, WorkerEvents, WorkerOptions, WorkItem } from "../types.js";
import { type Item, newItem, placeOf } from "./item.js";
import { lease } from "./lease.js";

const defaultDrainMs = 10_000;

/** Joins a group and works for it, through lost connections, until it is stopped. */
export function joined(
  { connection, clock }: Core,
  group: string,
  topic: string,
  handler: (item: WorkItem<never>, wire: WireMessage) => unknown,
  { concurrency = 1, onError, signal, ...given }: WorkerOptions,
  missing: object = { mode: "exclusive" }, // what a group that is not there is made with: any setting makes it
): Worker {
  const events = emitter<WorkerEvents>();
  const items = new Map<string, Item>(); // by place
  const timer = timers(clock);
  let settings = groupSettings(given);
  let sub: string | undefined; // the server's name of the membership
  let member: string | undefined; // kept over connections
  let assigned: number[] = [];
  let failures = 0;
  let stopping: Promise<void> | undefined;
  let idle = () => {}; // nothing is in hand any more
  let left = () => {}; // the membership is over

  function join(): void {
    if (stopping || connection.state !== "connected") return;
    const frame = { op: "join" as const, topic, group, member, credit: 2 * concurrency, ...settings };
    connection.ask(frame, (answer) => (answer.op === "joined" ? begin(answer) : refused(answer)));
  }

  function begin(answer: ServerFrame): void {
    failures = 0;
    sub = answer.sub!;
    member = answer.member;
    connection.hear(sub, receive);
    change("assigned", answer.partitions!, answer.partitions!);
    // What was said and not answered is said again: that does no harm.
    for (const item of items.values()) if (item.verdict) say(item);
  }

  function refused(frame: ServerFrame): void {
    const error = errorOf(frame);
    forget();
    if (error.code === "group-not-found" && !settings) {
      settings = missing;
      join();
    } else if (error.retryable || error.code === "fenced") timer.retry(join, failures++, error.retryAfterMs, join);
    else fail(error);
  }

  function fail(error: TidewireError): void {
    if (stopping) return;
    stopping = Promise.resolve();
    end(error);
    events.emit("error", error);
  }

  /** The membership is over; what is being worked on goes on, and the next one settles it. */
  function forget(): void {
    if (sub) connection.hear(sub);
    sub = undefined;
    timer.clear();
    dropWaiting();
    left();
  }

  function dropWaiting(): void {
    for (const item of items.values()) if (item.phase === "waiting") drop(item);
  }

  function drop(item: Item): void {
    item.lease.end();
    items.delete(item.place);
    if (sub && item.sub === sub && !stopping) connection.tell({ op: "credit", sub, add: 1 });
    if (!items.size) idle();
  }

  function change(event: "assigned" | "revoked", partitions: number[], now: number[]): void {
    assigned = now;
    events.emit(event, partitions);
  }

  function receive(frame: ServerFrame): void {
    const { op, partitions = [], messages = [] } = frame;
    for (const m of messages) take(m);
    if (op === "assigned") change(op, partitions, [...assigned, ...partitions]);
    if (op === "revoked")
      change(
        op,
        partitions,
        assigned.filter((p) => !partitions.includes(p)),
      );
    if (op === "error") refused(frame);
    pump();
  }

  function take(m: WireMessage): void {
    const known = items.get(placeOf(m));
    if (known) {
      // It comes again by a new membership while it is worked on: that renews its lease.
      known.sub = sub!;
      known.lease.renew(m.lease_ms!);
      return;
    }
    const { partition, offset, lease_ms: leaseMs = 0 } = m;
    const extend = () => {
      if (!sub) return; // the next membership brings it anew
      connection.ask(
        { op: "extend", sub, partition, offset },
        ({ op, stale }) => op === "acked" && !stale && held.renew(leaseMs),
      );
    };
    const held = lease(clock, leaseMs, extend, () => item.phase === "waiting" && drop(item));
    const item = newItem(m, sub!, held, say, extend);
    items.set(item.place, item);
  }

  /** Tells the server what becomes of a record, and who decided it what the server says to that. */
  function say(item: Item): void {
    item.lease.end();
    if (!sub) return; // the next membership says it
    const { partition, offset } = item.work;
    connection.ask({ ...item.verdict!, sub, partition, offset }, (answer) => {
      const error = answer.op === "error" ? errorOf(answer) : undefined;
      if (error?.retryable) return timer.retry(item, 1, error.retryAfterMs, () => say(item));
      const stale = answer.stale?.[0];
      item.answer?.(error ?? (stale && new TidewireError(stale.reason, "the record is not in this worker's hands")));
      item.answer = undefined;
      finish(item);
    });
  }

  /** A record leaves the hand once the handler is done with it and the server has answered. */
  function finish(item: Item): void {
    if (item.phase === "done" && !item.answer) drop(item);
    pump();
  }

  function pump(): void {
    if (stopping) return;
    for (const item of startable(items.values(), concurrency)) {
      item.phase = "running";
      void work(item);
    }
  }

  function judge(thrown: unknown, work: WorkItem): ReturnType<NonNullable<typeof onError>> {
    try {
      return onError?.(thrown, work) ?? "nack";
    } catch (again) {
      events.emit("error", asError(again, "handler"));
      return "nack";
    }
  }

  async function work(item: Item): Promise<void> {
    const { work } = item;
    let settle = () => work.ack();
    try {
      await handler(work as WorkItem<never>, item.wire);
    } catch (thrown) {
      const verdict = judge(thrown, work);
      const reason = asError(thrown, "handler").message.slice(0, 500);
      if (verdict === "reject") settle = () => work.reject(reason);
      else settle = () => work.nack(verdict === "nack" ? undefined : { delayMs: verdict.retryInMs });
    }
    item.phase = "done";
    // A record that went to other hands meanwhile is no fault of this worker.
    if (!item.verdict) settle().catch((error: TidewireError) => events.emit("error", error));
    finish(item);
  }

  function end(error: TidewireError): void {
    forget();
    for (const item of items.values()) {
      item.answer?.(error);
      drop(item);
    }
    part();
    unabort();
    globalThis.removeEventListener?.("pagehide", hide);
  }

  async function drain(drainMs: number): Promise<void> {
    const deadline = clock.now() + drainMs;
    /** Waits until what it hands over is called, and no longer than there is time. */
    const patiently = (begin: (done: () => void) => void) =>
      new Promise<void>((resolve) => {
        const cancel = clock.after(deadline - clock.now(), resolve);
        begin(() => {
          cancel();
          resolve();
        });
      });
    dropWaiting();
    if (items.size) {
      await patiently((done) => {
        idle = done;
      });
    }
    if (sub) {
      await patiently((done) => {
        left = done;
        connection.ask({ op: "leave", sub: sub! }, done);
      });
    }
    end(new TidewireError("closed", "the worker is stopped"));
  }

  const stop = (drainMs = defaultDrainMs): Promise<void> => {
    // What `drain` ends looks at whether it is stopping.
    stopping ??= Promise.resolve().then(() => drain(drainMs));
    return stopping;
  };
  /** A page that goes for good has no time to stop: its part is for others at once. */
  const hide = (e: Event) => {
    if (sub && !(e as PageTransitionEvent).persisted) connection.ask({ op: "leave", sub });
  };
  const part = connection.attach({
    up: join,
    down: forget,
    end: (error) => (error.code === "closed" ? end(error) : fail(error)),
    finish: () => stop(),
  });
  const unabort = onAbort(signal, () => void stop());
  globalThis.addEventListener?.("pagehide", hide);
  if (signal?.aborted) void stop();
  connection.connect();
  join();

  return {
    get assigned() {
      return assigned;
    },
    on: events.on,
    stop: (stopOpts) => stop(stopOpts?.drainMs),
    [Symbol.asyncDispose]: () => stop(),
  };
}
