import { asError, type TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";

/**
 * What becomes of a frame whose call failed: where nobody can be reached, or the
 * caller is nobody, the link is `broken`; else the refusal answers.
 */
export function refuse(
  thrown: unknown,
  answer: (refusal: ServerFrame) => void,
  broken: (error: TidewireError) => void,
): void {
  const error = asError(thrown, "network");
  const { code, problem, retryAfterMs } = error;
  if (code === "network" || code === "unauthorized") return broken(error);
  const retry_after = retryAfterMs === undefined ? undefined : `${retryAfterMs}ms`;
  answer({ ...(problem as object), op: "error", code, retry_after });
}
