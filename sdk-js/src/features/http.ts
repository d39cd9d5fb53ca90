import { onAbort } from "../client/abort.js";
import { errorOf, type Problem, TidewireError } from "../error.js";
import type { LinkOptions } from "../transport/transport.js";

export interface HttpCall {
  method?: string;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  body?: string;
  /** Its end, in place of that of the caller; a stream listens to it for as long as it is there. */
  signal?: AbortSignal;
  /** The answer is a stream: only its beginning is waited for. */
  stream?: boolean;
}

/** Calls the node, as the caller, and throws what it refuses. */
export type Http = (path: string, call?: HttpCall) => Promise<Response>;

/** How long an answer may take: a line that carries nothing any more does not say so. Polls wait for less. */
const answerMs = 60_000;

export function http(options: LinkOptions): Http {
  const { tokens, fetch, clock } = options;
  const once = async (path: string, { query, headers, signal = options.signal, stream, ...rest }: HttpCall) => {
    const url = new URL(options.url + path);
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const token = await tokens.get();
    const authorization = token && { Authorization: `Bearer ${token}` };
    signal.throwIfAborted();
    const control = new AbortController();
    const stop = () => {
      cancel();
      control.abort();
    };
    const cancel = clock.after(answerMs, stop);
    const unabort = onAbort(signal, stop);
    const init = { ...rest, headers: { ...headers, ...authorization }, signal: control.signal, cache: "no-store" };
    let reading = false;
    try {
      const answer = await fetch(url, init as RequestInit);
      reading = !!stream && answer.ok;
      return reading ? answer : new Response((await answer.text()) || null, answer);
    } catch (cause) {
      signal.throwIfAborted();
      throw new TidewireError("network", `${url.origin} cannot be reached`, { cause });
    } finally {
      cancel();
      if (!reading) unabort();
    }
  };
  return async (path, call = {}) => {
    let answer = await once(path, call);
    if (answer.status === 401 && tokens.spoil("unauthorized")) {
      answer = await once(path, call);
    }
    if (answer.ok) return answer;
    const problem = (await answer.json().catch(() => ({ detail: answer.statusText }))) as Problem;
    // It counts whole seconds: a random part of one keeps those who were refused together from coming back so.
    const seconds = answer.headers.get("Retry-After");
    const retryAfterMs = seconds === null ? undefined : (Number(seconds) + clock.random()) * 1000;
    throw errorOf({ status: answer.status, ...problem }, retryAfterMs);
  };
}
