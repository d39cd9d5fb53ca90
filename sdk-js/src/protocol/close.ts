/** What the end of a connection asks of the client. */
export type Verdict = "retry" | "renew" | "fatal";

/**
 * The ranges hold for ever, so a code that is newer than this client is understood:
 * 4000 to 4499 come back, 4500 to 4999 do not.
 */
export const verdictOf = (code: number): Verdict =>
  code === 4003 ? "renew" : code >= 4500 && code <= 4999 ? "fatal" : "retry";
