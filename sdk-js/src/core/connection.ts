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
  /** Between two attempts. `hinted`: the server said how long, so nothing cuts it short. */
  readonly waiting?: "freely" | "hinted";
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
  if (m.state === "closed") return [m];
  switch (e.type) {
    case "close":
      return [{ ...m, state: "closed" }, { do: "end" }];
    case "connect":
      return m.state === "idle" || m.state === "failed" ? [{ ...idle, state: "connecting" }, { do: "open" }] : [m];
    case "opened":
      return [{ state: "connected", attempt: m.attempt, rank: e.rank, misses: 0, openedAt: e.at }];
    case "due":
    case "wake":
      return m.waiting && (e.type === "due" || m.waiting === "freely")
        ? [{ ...m, waiting: undefined }, { do: "open" }]
        : [m];
    case "lost":
      return lost(m, e, policy);
  }
}

type Lost = MachineEvent & { type: "lost" };

function lost(m: Machine, e: Lost, policy: Policy): [Machine, Effect] {
  const healthy = m.openedAt !== undefined && e.at - m.openedAt >= healthyMs;
  const attempt = healthy ? 1 : m.attempt + 1;
  if (e.verdict === "fatal" || attempt > policy.maxAttempts) return [{ ...m, state: "failed", attempt }, { do: "end" }];
  const lostAt = m.lostAt ?? e.at;
  const hinted = e.retryAfterMs !== undefined;
  const ms = e.retryAfterMs ?? fullJitter(attempt - 1, policy.minDelayMs, policy.maxDelayMs, e.random);
  const next: Machine = {
    state: e.at - lostAt >= policy.suspendAfterMs ? "suspended" : "reconnecting",
    attempt,
    ...fallback(m, e, policy),
    waiting: hinted ? "hinted" : "freely",
    lostAt,
  };
  return [next, { do: "wait", ms }];
}

/**
 * The best transport is given up after it failed to open twice, any other after
 * once; after the last comes the first again. One that had opened is kept.
 */
function fallback(m: Machine, e: Lost, { transports }: Policy): Pick<Machine, "rank" | "misses"> {
  const misses = m.openedAt === undefined || e.blocked ? m.misses + 1 : 0;
  return misses >= (m.rank ? 1 : 2) ? { rank: (m.rank + 1) % transports, misses: 0 } : { rank: m.rank, misses };
}
