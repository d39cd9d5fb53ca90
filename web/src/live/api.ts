// The public HTTP API as this page calls it: as whoever gave it a token.

import { effect, signal } from "@preact/signals";
import { parse } from "../core/json.js";
import type { Problem } from "../core/wire.js";

const storedAs = "tidewire-token";

/** The token of this tab; it goes with the tab, and never into an address. */
export const token = signal(sessionStorage.getItem(storedAs) ?? "");

/** Why the node wants a token, or another one; empty while it does not. */
export const refused = signal("");

effect(() => {
  if (token.value) sessionStorage.setItem(storedAs, token.value);
  else sessionStorage.removeItem(storedAs);
});

/** What the node refused, in its own words; or that it did not answer, with the code `network`. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title || problem.code);
  }
  get code(): string {
    return this.problem.code;
  }
}

export interface Call {
  method?: string;
  query?: Record<string, string | number | undefined>;
  /** Sent as JSON. */
  json?: unknown;
  /** Sent as it is, of the type given. */
  body?: string;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Whether the numbers of the answer stay as they were written; only of values of records is that wanted. */
  exact?: boolean;
  /** How long the answer may take, in milliseconds. */
  timeoutMs?: number;
}

const patienceMs = 20_000;

/** The address of something: each part of the path is written so that it stays one part. */
export const at = (...path: (string | number)[]): string => `/${path.map((p) => encodeURIComponent(p)).join("/")}`;

async function send(path: string, call: Call): Promise<{ answer: Response; text: string }> {
  const set = Object.entries(call.query ?? {}).filter(([, v]) => v !== undefined);
  const query = new URLSearchParams(set.map(([k, v]) => [k, String(v)])).toString();
  const headers: Record<string, string> = { ...call.headers };
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  if (call.json !== undefined) headers["Content-Type"] = "application/json";
  else if (call.type) headers["Content-Type"] = call.type;
  const patience = AbortSignal.timeout(call.timeoutMs ?? patienceMs);
  const signals = call.signal ? [call.signal, patience] : [patience];
  try {
    const answer = await fetch(path + (query && `?${query}`), {
      method: call.method ?? "GET",
      headers,
      body: call.json === undefined ? call.body : JSON.stringify(call.json),
      cache: "no-store",
      signal: anyOf(signals),
    });
    return { answer, text: await answer.text() };
  } catch (thrown) {
    call.signal?.throwIfAborted();
    const detail = patience.aborted ? "This node does not answer." : "This node cannot be reached.";
    throw new ApiError({ code: "network", detail, cause: String(thrown) });
  }
}

/** AbortSignal.any, which not every browser has yet. */
function anyOf(signals: AbortSignal[]): AbortSignal {
  if (AbortSignal.any) return AbortSignal.any(signals);
  const all = new AbortController();
  for (const s of signals) s.addEventListener("abort", () => all.abort(s.reason));
  return all.signal;
}

/** Calls the node for text, whatever it is. */
export async function text(path: string, call: Call = {}): Promise<string> {
  const { answer, text: body } = await send(path, call);
  if (answer.ok) {
    if (refused.value && token.value) refused.value = "";
    return body;
  }
  let problem: Problem = { code: "internal", title: `The node answered ${answer.status}.`, status: answer.status };
  try {
    problem = { ...problem, ...(JSON.parse(body) as Problem) };
  } catch {
    // not one of the API's: the status says enough
  }
  if (answer.status === 401) refused.value = new ApiError(problem).message;
  throw new ApiError(problem);
}

/** Calls the node for JSON. */
export const api = async <T>(path: string, call?: Call): Promise<T> => {
  const body = await text(path, call);
  if (body === "") return undefined as T;
  return call?.exact ? parse<T>(body) : (JSON.parse(body) as T);
};

/** What went wrong, as a person reads it. */
export const messageOf = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown));
