import type { Core } from "../client/feature.js";
import { TidewireError } from "../error.js";
import type { WireMessage } from "../protocol/message.js";
import { encodeRecord } from "../protocol/record.js";
import type { WorkItem } from "../types.js";
import { ask } from "./asker.js";

/** How long a reply is tried where a request names no deadline. */
const patienceMs = 30_000;

/** Refusals of this one reply, and not of who gives it. */
const unfit = /^(message-too-large|invalid|unsupported)/;

/** What a member does with a request: it has the handler answer it, and brings the reply. */
export const answering =
  (core: Core, handler: (value: never, request: WorkItem<never>) => unknown) =>
  async (request: WorkItem<never>, { headers, lease_until, lease_ms }: WireMessage): Promise<void> => {
    const to = headers["Tidewire-Reply-To"];
    if (!to) return; // it is no request
    // What is left by the node's own clock: this machine's may be wrong.
    const sentAt = Date.parse(lease_until!) - lease_ms!;
    const leftMs = Date.parse(headers["Tidewire-Deadline"]!) - sentAt;
    if (leftMs <= 0) return; // nobody waits for it any more
    const timeoutMs = leftMs || patienceMs;
    const bring = (body: string, status?: number) =>
      ask(core, { frame: () => ({ op: "reply", to, status, body }), timeoutMs });

    let status: number | undefined;
    let body: string;
    try {
      body = encodeRecord((await handler(request.value, request)) ?? null, {});
    } catch (thrown) {
      [status, body] = failureOf(thrown);
    }
    try {
      await bring(body, status).catch((error) => {
        if (status || !unfit.test(error.code)) throw error;
        const [failed, why] = failureOf(error);
        return bring(why, failed);
      });
    } catch (error) {
      // Whoever asked has left, has its reply, or waits no longer.
      if (!/^(requester-gone|reply-timeout|timeout)$/.test((error as TidewireError).code)) throw error;
    }
  };

/** What a responder threw, as status and body of its reply. */
function failureOf(thrown: unknown): [number, string] {
  const {
    code,
    status,
    message = String(thrown),
  } = (thrown ?? {}) as { code?: unknown; status?: number; message?: string };
  const known = status !== undefined && status >= 400 && status < 600;
  return [known ? status : 500, encodeRecord({ code, detail: message }, {})];
}

/** That failure, as who asked sees it. */
export function responderError(status: number, value: unknown): TidewireError {
  const said = typeof value === "object" && value !== null ? (value as { detail?: string }) : { detail: String(value) };
  return new TidewireError("responder", said.detail ?? "the request failed", { problem: { ...said, status } });
}
