import type { InHand } from "../core/hand.js";
import { TidewireError } from "../error.js";
import type { SettleFrame } from "../protocol/frames.js";
import { toMessage, type WireMessage } from "../protocol/message.js";
import type { WorkItem } from "../types.js";
import type { Lease } from "./lease.js";

/** What is said of a record once it is decided what becomes of it. */
export type Verdict = Pick<SettleFrame, "op" | "delay" | "reason">;

/** A record in a member's hands. */
export interface Item extends InHand {
  readonly place: string;
  readonly lease: Lease;
  readonly work: WorkItem;
  /** As it came. */
  readonly wire: WireMessage;
  /** The membership that it came by last. */
  sub: string;
  /** What was said of it. */
  verdict?: Verdict;
  /** Tells who said it what the server says to that; undefined once it has. */
  answer?(outcome?: TidewireError): void;
}

export const placeOf = ({ partition, offset }: { partition: number; offset: number }): string =>
  `${partition}:${offset}`;

/** `say` sends its verdict, `extend` asks for more time. */
export function newItem(
  m: WireMessage,
  sub: string,
  lease: Lease,
  say: (item: Item) => void,
  extend: () => void,
): Item {
  const settle = (verdict: Verdict) =>
    new Promise<void>((resolve, reject) => {
      if (item.verdict) throw new TidewireError("invalid", `the record is settled already, by ${item.verdict.op}`);
      item.verdict = verdict;
      item.answer = (outcome) => (outcome ? reject(outcome) : resolve());
      say(item);
    });
  const work: WorkItem = {
    ...toMessage(m),
    delivery: m.delivery!,
    get leaseUntil() {
      return lease.until;
    },
    signal: lease.signal,
    ack: () => settle({ op: "ack" }),
    nack: ({ delayMs, reason } = {}) =>
      settle({ op: "nack", delay: delayMs === undefined ? undefined : `${delayMs}ms`, reason }),
    reject: (reason) => settle({ op: "reject", reason }),
    extend: async () => extend(),
  };
  const item: Item = { key: m.key ?? undefined, phase: "waiting", place: placeOf(m), lease, work, wire: m, sub };
  return item;
}
