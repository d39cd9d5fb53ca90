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
    const { problem, retryAfterMs = milliseconds(problem?.retry_after as string | undefined), cause } = more;
    super(`${code}: ${detail}`, { cause });
    Object.assign(this, {
      code,
      status: problem?.status,
      retryable: problem?.retryable !== false && isRetryable(code),
      retryAfterMs,
      problem,
    });
  }
}

/** What the server refused, in a problem or a frame, as an error of ours. */
export const errorOf = (told: object, retryAfterMs?: number): TidewireError => {
  const { code = "internal", title = "", detail = title } = told as Problem;
  return new TidewireError(code, detail, { problem: told as Problem, retryAfterMs });
};

/** What was thrown, as an error of ours. */
export const asError = (cause: unknown, code: string): TidewireError =>
  cause instanceof TidewireError ? cause : new TidewireError(code, `${(cause as Error)?.message ?? cause}`, { cause });
