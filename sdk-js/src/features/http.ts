import { errorOf, type Problem, TidewireError } from "../error.js";
import type { LinkOptions } from "../transport/transport.js";

export interface HttpCall {
  method?: string;
  query?: Record<string, string | number | undefined>;
  headers?: Record<string, string>;
  body?: string;
  signal?: AbortSignal;
  /** The answer is a stream: only its beginning is waited for. */
  stream?: boolean;
}

/** Calls the node, as the caller, and throws what it refuses. */
export type Http = (path: string, call?: HttpCall) => Promise<Response>;

/** How long an answer may take: a line that carries nothing any more does not say so. Polls wait for less. */
const answerMs = 60_000;

export function http(options: LinkOptions): Http {
  const { tokens, fetch, clock, signal: life } = options;

  const once = async (path: string, { query, headers, signal = life, stream, ...init }: HttpCall) => {
    const url = new URL(options.url + path);
    for (const [name, value] of Object.entries(query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, `${value}`);
    }
    const token = await tokens.get();
    const over = AbortSignal.any([life, signal]);
    over.throwIfAborted();
    const late = new AbortController();
    const cancel = clock.after(answerMs, () => late.abort());
    over.addEventListener("abort", cancel);
    try {
      const answer = await fetch(url, {
        ...init,
        headers: { ...headers, ...(token && { Authorization: `Bearer ${token}` }) },
        signal: AbortSignal.any([over, late.signal]),
        cache: "no-store",
      });
      return stream && answer.ok ? answer : new Response((await answer.text()) || null, answer);
    } catch (cause) {
      over.throwIfAborted();
      throw new TidewireError("network", `${url.origin} cannot be reached`, { cause });
    } finally {
      cancel();
    }
  };
  return async (path, call = {}) => {
    let answer = await once(path, call);
    if (answer.status === 401 && tokens.spoil("unauthorized")) answer = await once(path, call);
    if (answer.ok) return answer;
    const { status, statusText, headers } = answer;
    const problem: Problem = await answer.json().catch(() => ({ detail: statusText }));
    // It counts whole seconds: a random part of one keeps those who were refused together from coming back so.
    const seconds = headers.get("Retry-After");
    throw errorOf({ status, ...problem }, seconds === null ? undefined : (Number(seconds) + clock.random()) * 1000);
  };
}
