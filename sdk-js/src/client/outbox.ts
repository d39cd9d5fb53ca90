import {
  interrupted,
  isFlying,
  type Lane,
  mayBeKept,
  newLane,
  type Outgoing,
  refused,
  rewind,
  take,
  unmapped,
} from "../core/lane.js";
import { errorOf, TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";
import { type Layout, openPartitions, partitionOf } from "../protocol/layout.js";
import { uuidv7 } from "../protocol/uuid.js";
import type { Published } from "../types.js";
import type { Core } from "./feature.js";
import { timers } from "./timers.js";

/** A record, and who waits for it. */
export interface Sending extends Outgoing {
  settle(error?: unknown, published?: Published): void;
  /** The last refusal that it may get over. */
  error?: TidewireError;
}

interface Topic {
  layout?: Layout;
  asked?: boolean; // for its layout
  failures: number; // of that, or of its lanes, in a row
  unrouted: Sending[]; // no lane is known for them yet
  lanes: Map<number, Lane<Sending>>;
  turn: number; // of records without a key
}

/** What is under way at most; the server remembers the last 1,024 of a producer. */
const mostRecords = 1000;
const mostChars = 4 << 20;

export interface Outbox {
  add(topic: string, r: Sending): void;
  /** Some are not waited for any more: they do not go, unless they may be kept already. */
  thin(): void;
}

/** Sends records, each topic's by its layout and each partition's in order, until the log has them. */
export function outbox({ connection, clock }: Core, waitedFor: Set<Sending>): Outbox {
  const topics = new Map<string, Topic>();
  const timer = timers(clock);
  let records = 0; // under way
  let chars = 0;
  let flushing = false;
  let thinning = false;

  const wanted = (r: Sending) => waitedFor.has(r) || mayBeKept(r);

  /** Records that are published in one go leave in one frame. */
  function flushSoon(): void {
    if (!flushing) queueMicrotask(flush);
    flushing = true;
  }

  function flush(): void {
    flushing = false;
    for (const [topic, t] of topics) {
      if (thinning) {
        t.unrouted = t.unrouted.filter(wanted);
        for (const lane of t.lanes.values()) lane.records = lane.records.filter(wanted);
      }
      if (connection.state === "connected") send(topic, t);
    }
    thinning = false;
  }

  function send(topic: string, t: Topic): void {
    const lanes = [...t.lanes.values()];
    const stale = lanes.some((lane) => lane.stale);
    const again = stale && unmapped(lanes);
    if (again) {
      t.unrouted = [...again, ...t.unrouted].sort((a, b) => a.order - b.order);
      t.failures = Math.max(...lanes.map((lane) => lane.failures)); // those that come now go on with it
      t.lanes.clear();
      t.layout = undefined;
    }
    if (again || !stale) route(topic, t);
    for (const lane of t.lanes.values()) {
      const { partition, producer } = lane;
      for (const r of take(lane, mostRecords - records, mostChars - chars)) {
        const { sequence, acks, body } = r;
        const place = { topic, partition, producer: sequence === undefined ? undefined : producer, sequence };
        records++;
        chars += body.length;
        connection.ask({ op: "publish", ...place, acks, body }, (frame) => answered(t, lane, r, frame));
      }
    }
  }

  function answered(t: Topic, lane: Lane<Sending>, r: Sending, frame: ServerFrame): void {
    const error = frame.op === "error" ? errorOf(frame) : undefined;
    records--;
    chars -= r.body.length;
    if (error && refused(lane, r, error) === "again") r.error = error;
    else {
      const { op, id, ...published } = frame;
      if (!error) t.failures = lane.failures = 0;
      r.flying = r.doubt = false;
      lane.records.splice(lane.records.indexOf(r), 1);
      r.settle(error, { duplicate: false, ...published } as Published);
    }
    if (!lane.rewinding) flushSoon();
    else if (!isFlying(lane)) {
      // What is stale is mended at once, the first time.
      timer.retry(lane, lane.failures, lane.retryAfterMs ?? (lane.stale && !lane.failures ? 0 : undefined), () => {
        forget(rewind(lane));
        flushSoon();
      });
    }
  }

  /** Gives up on records of which nobody can tell whether they are kept. */
  function forget(lost: Sending[]): void {
    for (const r of lost) r.settle(new TidewireError("unknown-outcome", "it may be kept"));
  }

  /** Gives the records that have none a lane, once the layout is known. */
  function route(topic: string, t: Topic): void {
    const { layout, lanes, unrouted } = t;
    if (!unrouted.length) return;
    if (!layout) return askLayout(topic, t);
    const open = openPartitions(layout);
    t.unrouted = unrouted.filter((r) => {
      const partition = r.hash === undefined ? open[t.turn++ % open.length]?.id : partitionOf(layout, r.hash);
      if (partition === undefined) return true; // its range is just being moved
      const lane = lanes.get(partition) ?? newLane(partition, uuidv7(clock.now()), t.failures);
      lanes.set(partition, lane);
      lane.records.push(r);
      return false;
    });
    if (t.unrouted.length) askAgain(t);
  }

  function askLayout(topic: string, t: Topic): void {
    if (t.asked) return;
    t.asked = true;
    connection.ask({ op: "metadata", topic }, (frame) => {
      t.asked = false;
      t.layout = frame.layout;
      if (!t.layout) {
        const error = errorOf(frame);
        if (error.retryable) return askAgain(t, error.retryAfterMs);
        for (const r of t.unrouted.splice(0)) r.settle(error);
      }
      flushSoon();
    });
  }

  function askAgain(t: Topic, hintMs?: number): void {
    t.asked = true;
    t.layout = undefined;
    timer.retry(t, t.failures++, hintMs, () => {
      t.asked = false;
      flushSoon();
    });
  }

  connection.attach({
    up: flushSoon,
    down() {
      records = chars = 0;
      timer.clear();
      for (const t of topics.values()) {
        t.asked = false;
        for (const lane of t.lanes.values()) forget(interrupted(lane));
      }
    },
    end(error) {
      topics.clear();
      for (const r of waitedFor) {
        if (mayBeKept(r)) forget([r]);
        else r.settle(error);
      }
    },
  });

  return {
    add(topic, r) {
      const t: Topic = topics.get(topic) ?? { failures: 0, unrouted: [], lanes: new Map(), turn: 0 };
      topics.set(topic, t);
      t.unrouted.push(r);
      flushSoon();
    },
    thin() {
      thinning = true;
    },
  };
}
