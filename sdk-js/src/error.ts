import { isRetryable } from "./protocol/codes.js";
import { milliseconds } from "./protocol/duration.js";

/** An RFC 9457 problem, or an error frame, which has the same members. */
export interface Problem {
  code?: string;
  type?: string;
  title?: string;
  status?: number;
  detail?: string;
  [member: string]: unknown;
}

/**
 * Match on `code`, never on text. The server's codes are those of its protocol; the
 * client's own are `timeout` (nothing was kept), `offline` (nor now), `closed`,
 * `network`, `handler`, and `responder` (whoever answered a request says that it failed).
 */
export class TidewireError extends Error {
  override readonly name = "TidewireError";
  declare readonly code: string;
  declare readonly status?: number;
  declare readonly retryable: boolean;
  declare readonly retryAfterMs?: number;
  declare readonly problem?: Problem;

  constructor(code: string, detail: string, more: { problem?: Problem; retryAfterMs?: number; cause?: unknown } = {}) {
    super(`${code}: ${detail}`, { cause: more.cause });
    const { problem } = more;
    this.code = code;
    this.status = problem?.status;
    this.retryable = problem?.retryable !== false && isRetryable(code);
    this.retryAfterMs = more.retryAfterMs ?? milliseconds(problem?.retry_after as string | undefined);
    this.problem = problem;
  }
}

export const errorOf = (problem: Problem, retryAfterMs?: number): TidewireError =>
  new TidewireError(problem.code ?? "internal", problem.detail ?? problem.title ?? "", { problem, retryAfterMs });

/** What was thrown, as an error of ours. */
export const asError = (thrown: unknown, code: string): TidewireError =>
  thrown instanceof TidewireError
    ? thrown
    : new TidewireError(code, thrown instanceof Error ? thrown.message : String(thrown), { cause: thrown });
