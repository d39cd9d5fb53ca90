// The beginnings of codes, as short as they may be: docs/protocol.md has the whole list.
const retryable = /^(throttled|limit|leader-|disk-|coord|draining|network|no-r|not-e|rep(ly|art)|unknown-o)/;
const misplaced = /^(wrong-p|partition-)/;

/** Refusals that the same call may get over. */
export const isRetryable = (code: string): boolean => retryable.test(code);

/** Refusals for where a record was sent: the topic's layout is another than the client knows. */
export const isMisplaced = (code: string): boolean => misplaced.test(code);
