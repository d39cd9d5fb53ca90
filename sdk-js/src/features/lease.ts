import type { Clock } from "../client/clock.js";

/** One member's hold on a record. It ends by itself unless it is renewed. */
export interface Lease {
  readonly until: Date;
  readonly signal: AbortSignal;
  renew(ms: number): void;
  /** The record is settled, or given up. */
  end(): void;
}

/** Asks for more at half of each lease; `lost` says that it has run out. */
export function lease(clock: Clock, ms: number, extend: () => void, lost: () => void): Lease {
  const control = new AbortController();
  let until = 0;
  let cancels: Array<() => void> = [];
  const end = () => {
    for (const cancel of cancels) cancel();
    cancels = [];
  };
  const renew = (leaseMs: number) => {
    end();
    until = clock.now() + leaseMs;
    const over = () => {
      control.abort(new Error("the lease has run out"));
      lost();
    };
    cancels = [clock.after(leaseMs / 2, extend), clock.after(leaseMs, over)];
  };
  renew(ms);
  return {
    get until() {
      return new Date(until);
    },
    signal: control.signal,
    renew,
    end,
  };
}
