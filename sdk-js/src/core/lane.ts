import type { TidewireError } from "../error.js";
import { isStale } from "../protocol/codes.js";
import type { Acks } from "../types.js";

/** A record that is being published. */
export interface Outgoing {
  readonly order: number; // of publish calls
  readonly hash: number | undefined; // of its key
  readonly body: string;
  readonly acks?: Acks;
  sequence?: number;
  /** Its frame is on the link and not answered. */
  flying?: boolean;
  /** An earlier frame of it may have been kept. */
  doubt?: boolean;
}

/**
 * The records of one producer to one partition, in the order in which they are to
 * be kept. Sequence numbers are given when a record is first sent, and a record
 * keeps its number until it is resolved. After a refusal of the moment nothing is
 * sent until all answers have come; then what is left goes again, in order, with
 * the same numbers. Where the server expects other numbers, or has the partition
 * elsewhere, only what may be kept is asked for still; what is left then is known
 * not to be kept, and begins anew in other lanes.
 */
export interface Lane<R extends Outgoing = Outgoing> {
  readonly partition: number;
  readonly producer: string;
  next: number;
  records: R[];
  /** Rewinds in a row. */
  failures: number;
  /** Nothing new goes until all answers are there, */
  rewinding?: boolean;
  /** and for so long after, as one of them said. */
  retryAfterMs?: number;
  /** Its partition or its numbers are no good any more. */
  stale?: boolean;
  /** The server does not know the producer any more: of what may be kept it cannot tell. */
  forgotten?: boolean;
}

export const newLane = <R extends Outgoing>(partition: number, producer: string, failures = 0): Lane<R> => ({
  partition,
  producer,
  next: 0,
  records: [],
  failures,
});

/** Whether the log may have it. */
export const mayBeKept = (r: Outgoing): boolean | undefined => r.flying || r.doubt;

export const isFlying = (lane: Lane): boolean => lane.records.some((r) => r.flying);

/** The records to send now, within `room`, with their numbers given. */
export function take<R extends Outgoing>(lane: Lane<R>, room: number, chars: number): R[] {
  const taken: R[] = [];
  if (lane.rewinding) return taken;
  let sequenced = false; // something with a number is under way
  for (const r of lane.records) {
    if (taken.length >= room || chars <= 0) break;
    if (!r.flying && (!lane.stale || r.doubt)) {
      // A record without a number must not overtake one that may have to go again.
      if (r.acks === "none" && sequenced) break;
      if (r.acks !== "none") r.sequence ??= lane.next++;
      r.flying = true;
      chars -= r.body.length;
      taken.push(r);
    }
    sequenced ||= r.sequence !== undefined;
  }
  return taken;
}

/** What a refusal means for its record: it is out, or it goes again. */
export function refused(lane: Lane, r: Outgoing, { code, retryable, retryAfterMs }: TidewireError): "out" | "again" {
  r.flying = false;
  if (r.acks === "none") return "out";
  if (isStale(code)) {
    lane.stale = true;
    // A producer of whom nothing is kept is not known either.
    lane.forgotten ||= code === "unknown-producer" && lane.records[0]!.sequence !== 0;
    r.doubt &&= lane.forgotten; // else it is not kept, for its number is still to come
  } else if (retryable) r.doubt ||= code === "unknown-outcome";
  else return "out";
  lane.rewinding = true;
  lane.retryAfterMs = retryAfterMs ?? lane.retryAfterMs;
  return "again";
}

/**
 * Begins again once nothing flies. What it returns cannot be told apart from
 * something kept, since its producer is forgotten: its outcome stays unknown.
 */
export function rewind<R extends Outgoing>(lane: Lane<R>): R[] {
  lane.failures++;
  return again(lane, (r) => lane.forgotten && r.doubt);
}

/** The link is gone, and with it all answers. What it returns cannot go again. */
export function interrupted<R extends Outgoing>(lane: Lane<R>): R[] {
  const lost = again(lane, (r) => r.flying && r.acks === "none");
  for (const r of lane.records) {
    r.doubt ||= r.flying;
    r.flying = false;
  }
  return lost;
}

/** Begins again, without those records that it returns. */
function again<R extends Outgoing>(lane: Lane<R>, isLost: (r: R) => boolean | undefined): R[] {
  const lost = lane.records.filter(isLost);
  lane.records = lane.records.filter((r) => !lost.includes(r));
  lane.rewinding = lane.forgotten = false;
  lane.retryAfterMs = undefined;
  return lost;
}

/** All records of a topic, to be mapped anew: where a lane is stale, and nothing is under way or in doubt any more. */
export function unmapped<R extends Outgoing>(lanes: Lane<R>[]): R[] | undefined {
  if (lanes.some((lane) => lane.rewinding || lane.records.some(mayBeKept))) return undefined;
  const records = lanes.flatMap((lane) => lane.records);
  for (const r of records) r.sequence = undefined;
  return records;
}
