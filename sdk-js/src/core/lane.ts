import type { TidewireError } from "../error.js";
import { isMisplaced } from "../protocol/codes.js";
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
 * the same numbers. Where the server expects other numbers, everything that is left
 * is known not to be kept, and goes as a new producer's.
 */
export interface Lane<R extends Outgoing = Outgoing> {
  readonly partition: number;
  producer: string;
  next: number;
  records: R[];
  /** Rewinds in a row. */
  failures: number;
  /** Nothing new goes until all answers are there. */
  rewinding?: boolean;
  /** The numbers do not fit: a new producer has to begin. */
  unfit?: boolean;
  /** And that because the server has forgotten the producer: what may be kept it cannot tell. */
  forgotten?: boolean;
  /** The partition is not, or no longer, that of its records. */
  misplaced?: boolean;
}

export const newLane = <R extends Outgoing>(partition: number, producer: string): Lane<R> => ({
  partition,
  producer,
  next: 0,
  records: [],
  failures: 0,
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
    if (!r.flying && (!lane.misplaced || r.doubt)) {
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
export function refused(lane: Lane, r: Outgoing, { code, retryable }: TidewireError): "out" | "again" {
  const early = code === "out-of-order-sequence";
  r.flying = false;
  if (r.acks === "none") return "out";
  if (early || code === "unknown-producer") {
    lane.unfit = true;
    // A producer of whom nothing is kept is not known either.
    lane.forgotten = !early && lane.records[0]!.sequence !== 0;
    r.doubt &&= lane.forgotten; // else its number is still to come
  } else if (isMisplaced(code)) {
    lane.misplaced = true;
    r.doubt = false;
  } else if (retryable) r.doubt ||= code === "unknown-outcome";
  else return "out";
  lane.rewinding = true;
  return "again";
}

/**
 * Begins again once nothing flies. What it returns cannot be told apart from
 * something kept, since its producer is forgotten: its outcome stays unknown.
 */
export function rewind<R extends Outgoing>(lane: Lane<R>, producer: string): R[] {
  const lost = lane.forgotten ? takeOut(lane, (r) => r.doubt) : [];
  if (lane.unfit && !lane.records.some((r) => r.doubt)) {
    for (const r of lane.records) r.sequence = undefined;
    lane.producer = producer;
    lane.next = 0;
  }
  again(lane);
  lane.failures++;
  return lost;
}

/** The link is gone, and with it all answers. What it returns cannot go again. */
export function interrupted<R extends Outgoing>(lane: Lane<R>): R[] {
  const lost = takeOut(lane, (r) => r.flying && r.acks === "none");
  for (const r of lane.records) {
    r.doubt ||= r.flying;
    r.flying = false;
  }
  again(lane);
  return lost;
}

function takeOut<R extends Outgoing>(lane: Lane<R>, which: (r: R) => boolean | undefined): R[] {
  const out = lane.records.filter(which);
  lane.records = lane.records.filter((r) => !which(r));
  return out;
}

function again(lane: Lane): void {
  lane.rewinding = lane.unfit = lane.forgotten = false;
}
