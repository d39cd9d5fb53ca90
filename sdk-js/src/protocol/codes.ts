// The beginnings of codes, as short as they may be: docs/protocol.md has the whole list.
const retryable = /^(throttled|limit|leader-|disk-|coord|draining|network|no-r|not-e|rep(ly|art)|unknown-o)/;
const stale = /^(wrong-p|partition-|out-of-o|unknown-p)/;

/** Refusals that the same call may get over. */
export const isRetryable = (code: string): boolean => retryable.test(code);

/** Refusals for where a record was sent, or for its number: the topic's layout, or its producer, is not what the client takes it for. */
export const isStale = (code: string): boolean => stale.test(code);
