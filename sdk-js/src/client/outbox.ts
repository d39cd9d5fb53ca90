import { fullJitter } from "../core/backoff.js";
import { interrupted, isFlying, type Lane, newLane, type Outgoing, refused, rewind, take } from "../core/lane.js";
import { errorOf, TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";
import { type Layout, openPartitions, partitionOf } from "../protocol/layout.js";
import { uuidv7 } from "../protocol/uuid.js";
import type { Published } from "../types.js";
import type { Clock } from "./clock.js";
import type { Connection, Part, Question } from "./connection.js";

/** A record, and who waits for it. */
export interface Sending extends Outgoing {
  settle(outcome: Published | TidewireError): void;
  /** The last refusal that it may get over. */
  error?: TidewireError;
}

interface Topic {
  layout?: Layout;
  asked: boolean; // for its layout
  failures: number; // of that, in a row
  unrouted: Sending[]; // no lane is known for them yet
  lanes: Map<number, Lane<Sending>>;
  turn: number; // of records without a key
}

export interface Outbox extends Part {
  add(topic: string, r: Sending): void;
  /** Nobody waits for it any more: it does not go, unless it may be kept already. */
  abandon(topic: string, r: Sending): void;
}

/** What is under way at most; the server remembers the last 1,024 of a producer. */
const mostRecords = 1000;
const mostChars = 4 << 20;

const retryMinMs = 50;
const retryMaxMs = 5000;

/** Sends records, each topic's by its layout and each partition's in order, until the log has them. */
export function outbox(connection: Connection, clock: Clock): Outbox {
  const topics = new Map<string, Topic>();
  const waits = new Set<() => void>(); // what cancels each
  let records = 0; // under way
  let chars = 0;
  let flushing = false;

  function topicOf(name: string): Topic {
    const t = topics.get(name) ?? { asked: false, failures: 0, unrouted: [], lanes: new Map(), turn: 0 };
    topics.set(name, t);
    return t;
  }

  function later(failures: number, hintMs: number | undefined, fn: () => void): void {
    const ms = hintMs ?? fullJitter(failures, retryMinMs, retryMaxMs, clock.random());
    const cancel = clock.after(ms, () => {
      waits.delete(cancel);
      fn();
    });
    waits.add(cancel);
  }

  /** Records that are published in one go leave in one frame. */
  function flushSoon(): void {
    if (flushing) return;
    flushing = true;
    queueMicrotask(() => {
      flushing = false;
      if (connection.state !== "connected") return;
      const questions: Question[] = [];
      for (const [name, t] of topics) {
        remap(t);
        route(name, t);
        for (const lane of t.lanes.values()) collect(name, lane, questions);
      }
      if (questions.length) connection.ask(questions);
    });
  }

  function collect(topic: string, lane: Lane<Sending>, questions: Question[]): void {
    for (const r of take(lane, mostRecords - records, mostChars - chars)) {
      records++;
      chars += r.body.length;
      const { sequence, acks, body } = r;
      const producer = sequence === undefined ? undefined : lane.producer;
      questions.push([
        { op: "publish", topic, partition: lane.partition, producer, sequence, acks, body },
        (frame) => answered(lane, r, frame),
      ]);
    }
  }

  function answered(lane: Lane<Sending>, r: Sending, frame: ServerFrame): void {
    records--;
    chars -= r.body.length;
    let hintMs: number | undefined;
    if (frame.op === "published") {
      const { topic, partition, offset, timestamp, duplicate = false } = frame;
      lane.failures = 0;
      settle(lane, r, { topic: topic!, partition: partition!, offset, timestamp, duplicate });
    } else {
      const error = errorOf({ ...frame });
      if (refused(lane, r, error) === "out") settle(lane, r, error);
      else {
        r.error = error;
        hintMs = error.retryAfterMs;
      }
    }
    if (!lane.rewinding) return flushSoon();
    if (isFlying(lane)) return;
    // Numbers that do not fit are mended at once, the first time.
    later(lane.failures, lane.unfit && !lane.failures ? 0 : hintMs, () => {
      for (const lost of rewind(lane, uuidv7(clock.now()))) {
        lost.settle(
          new TidewireError("unknown-outcome", "the node has forgotten the producer; the record may be kept"),
        );
      }
      flushSoon();
    });
  }

  function settle(lane: Lane<Sending>, r: Sending, outcome: Published | TidewireError): void {
    r.flying = false;
    lane.records.splice(lane.records.indexOf(r), 1);
    r.settle(outcome);
  }

  /** Gives the records that have none a lane, once the layout is known. */
  function route(name: string, t: Topic): void {
    if (!t.unrouted.length || [...t.lanes.values()].some((lane) => lane.misplaced)) return;
    if (!t.layout) return askLayout(name, t);
    const open = openPartitions(t.layout);
    for (const r of t.unrouted.splice(0)) {
      const partition = r.hash === undefined ? open[t.turn++ % open.length]?.id : partitionOf(t.layout, r.hash);
      if (partition === undefined) {
        t.unrouted.push(r); // its range is just being moved
        continue;
      }
      let lane = t.lanes.get(partition);
      if (!lane) {
        lane = newLane(partition, uuidv7(clock.now()));
        t.lanes.set(partition, lane);
      }
      lane.records.push(r);
    }
    if (t.unrouted.length) askAgain(t);
  }

  function askLayout(topic: string, t: Topic): void {
    if (t.asked) return;
    t.asked = true;
    connection.ask([
      [
        { op: "metadata", topic },
        (frame) => {
          if (frame.op === "metadata") {
            t.asked = false;
            t.layout = frame.layout;
            return flushSoon();
          }
          const error = errorOf({ ...frame });
          if (error.retryable) return askAgain(t, error.retryAfterMs);
          t.asked = false;
          for (const r of t.unrouted.splice(0)) r.settle(error);
        },
      ],
    ]);
  }

  function askAgain(t: Topic, hintMs?: number): void {
    t.asked = true;
    t.layout = undefined;
    later(t.failures++, hintMs, () => {
      t.asked = false;
      flushSoon();
    });
  }

  /** Maps a topic anew whose layout has changed, once all that is under way or in doubt is resolved. */
  function remap(t: Topic): void {
    const lanes = [...t.lanes.values()];
    if (!lanes.some((lane) => lane.misplaced)) return;
    if (lanes.some((lane) => lane.rewinding || lane.records.some((r) => r.flying || r.doubt))) return;
    t.layout = undefined;
    t.lanes.clear();
    const left = lanes.flatMap((lane) => lane.records).sort((a, b) => a.order - b.order);
    for (const r of left) r.sequence = undefined;
    t.unrouted.unshift(...left);
  }

  return {
    add(topic, r) {
      topicOf(topic).unrouted.push(r);
      flushSoon();
    },
    abandon(topic, r) {
      const t = topicOf(topic);
      for (const list of [t.unrouted, ...[...t.lanes.values()].map((lane) => lane.records)]) {
        const i = list.indexOf(r);
        if (i >= 0 && !r.flying && !r.doubt) list.splice(i, 1);
      }
    },
    up: flushSoon,
    down() {
      records = chars = 0;
      for (const cancel of waits) cancel();
      waits.clear();
      for (const t of topics.values()) {
        t.asked = false;
        for (const lane of t.lanes.values()) {
          for (const r of interrupted(lane)) r.settle(new TidewireError("unknown-outcome", "the connection was lost"));
        }
      }
    },
    end: () => topics.clear(),
  };
}
