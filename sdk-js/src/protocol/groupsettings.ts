import type { WorkerOptions } from "../types.js";
import { placeOf } from "./position.js";

/** The settings that a group is made with, as the wire wants them; undefined where none is given. */
export function groupSettings({ mode, from, leaseMs, maxDeliveries, deadLetter }: WorkerOptions): object | undefined {
  const settings = {
    mode,
    from: from && placeOf(from).from,
    lease: leaseMs && `${leaseMs}ms`,
    max_deliveries: maxDeliveries,
    dead_letter: deadLetter,
  };
  return Object.values(settings).some((value) => value !== undefined) ? settings : undefined;
}
