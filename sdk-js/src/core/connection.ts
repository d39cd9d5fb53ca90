import type { Verdict } from "../protocol/close.js";
import type { ConnectionState } from "../types.js";
import { fullJitter } from "./backoff.js";

/** What decides about a connection; pure. The shell carries the effects out. */
export interface Machine {
  readonly state: ConnectionState;
  /** Failures in a row. */
  readonly attempt: number;
  /** The transport in use; 0 is the best. */
  readonly rank: number;
  /** How often in a row that transport did not open. */
  readonly misses: number;
  /** Between two attempts. */
  readonly waiting?: boolean;
  /** The server said how long, so nothing cuts it short. */
  readonly hinted?: boolean;
  readonly openedAt?: number;
  /** Since when there has been no connection. */
  readonly lostAt?: number;
}

export type MachineEvent =
  | { type: "connect" }
  | { type: "opened"; at: number; rank: number }
  | { type: "lost"; at: number; random: number; verdict: Verdict; retryAfterMs?: number; blocked?: boolean }
  /** The wait is over. */
  | { type: "due" }
  /** The network is back, or the page is looked at again. */
  | { type: "wake" }
  | { type: "close" };

export type Effect = { do: "open" } | { do: "wait"; ms: number } | { do: "end" };

export interface Policy {
  minDelayMs: number;
  maxDelayMs: number;
  maxAttempts: number;
  suspendAfterMs: number;
  transports: number;
}

export const idle: Machine = { state: "idle", attempt: 0, rank: 0, misses: 0 };

/** A connection that lasted so long starts the backoff anew. */
const healthyMs = 5000;

export function transition(m: Machine, e: MachineEvent, policy: Policy): [Machine, Effect?] {
  const { state, attempt } = m;
  if (state === "closed") return [m];
  switch (e.type) {
    case "close":
      return [{ ...m, state: "closed" }, { do: "end" }];
    case "connect":
      return state === "idle" || state === "failed" ? [{ ...idle, state: "connecting" }, { do: "open" }] : [m];
    case "opened":
      return [{ state: "connected", attempt, rank: e.rank, misses: 0, openedAt: e.at }];
    case "lost":
      return lost(m, e, policy);
    default:
      return m.waiting && (e.type === "due" || !m.hinted) ? [{ ...m, waiting: false }, { do: "open" }] : [m];
  }
}

function lost(m: Machine, e: MachineEvent & { type: "lost" }, policy: Policy): [Machine, Effect] {
  const { at, retryAfterMs } = e;
  const { openedAt, lostAt = at } = m;
  const attempt = at - openedAt! >= healthyMs ? 1 : m.attempt + 1;
  if (e.verdict === "fatal" || attempt > policy.maxAttempts) return [{ ...m, state: "failed", attempt }, { do: "end" }];
  // The best transport is given up after it failed to open twice, any other after
  // once; after the last comes the first again. One that had opened is kept.
  const misses = openedAt === undefined || e.blocked ? m.misses + 1 : 0;
  const next = misses >= (m.rank ? 1 : 2);
  return [
    {
      state: at - lostAt >= policy.suspendAfterMs ? "suspended" : "reconnecting",
      attempt,
      rank: next ? (m.rank + 1) % policy.transports : m.rank,
      misses: next ? 0 : misses,
      waiting: true,
      hinted: retryAfterMs !== undefined,
      lostAt,
    },
    { do: "wait", ms: retryAfterMs ?? fullJitter(attempt - 1, policy.minDelayMs, policy.maxDelayMs, e.random) },
  ];
}
