import { onAbort } from "../client/abort.js";
import type { Asked } from "../client/connection.js";
import type { Core } from "../client/feature.js";
import { timers } from "../client/timers.js";
import { errorOf, TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";

/** Something that is asked until there is an answer. */
export interface Inquiry {
  /** The frame of the next try, with so much time left. */
  frame(leftMs: number): Asked;
  timeoutMs: number;
  signal?: AbortSignal;
}

/** How much later than its deadline the node may still say so. */
const graceMs = 1000;

/**
 * Resolves to the answer. A try that is refused for the moment, or whose link is lost, is
 * followed by another one, until the time is up.
 */
export function ask({ connection, clock }: Core, { frame, timeoutMs, signal }: Inquiry): Promise<ServerFrame> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const timer = timers(clock);
    const deadline = clock.now() + timeoutMs;
    let flying = false;
    let doubt = false; // an earlier try may have arrived
    let refusal: TidewireError | undefined; // the last one of the moment
    let failures = 0;

    const send = () => {
      const leftMs = deadline - clock.now();
      if (flying || connection.state !== "connected" || leftMs < 1) return;
      flying = true;
      connection.ask(frame(leftMs), answered);
    };
    const answered = (answer: ServerFrame) => {
      if (answer.op === "accepted") {
        doubt = true;
        return;
      }
      flying = false;
      if (answer.op !== "error") return finish(resolve, answer);
      const error = errorOf(answer);
      const { code } = error;
      // Of an earlier try that nobody responds now says nothing.
      const final = code === "no-responders" ? !doubt : code === "reply-timeout" || !error.retryable;
      if (final) return finish(reject, error);
      doubt ||= code === "unknown-outcome";
      refusal = error;
      timer.retry(send, failures++, error.retryAfterMs, send);
    };
    const over = () => {
      const code = doubt || flying ? "reply-timeout" : "timeout";
      const late = new TidewireError(code, `no reply within ${timeoutMs} ms`, { cause: refusal });
      finish(reject, (!doubt && refusal) || late);
    };
    const finish = <V>(settle: (value: V) => void, value: V) => {
      part();
      timer.clear();
      cancel();
      unabort();
      settle(value);
    };
    let cancel = clock.after(timeoutMs, () => {
      if (flying) cancel = clock.after(graceMs, over);
      else over();
    });
    const part = connection.attach({
      up: send,
      down() {
        doubt ||= flying;
        flying = false;
        timer.clear();
      },
      end: (error) => finish(reject, error),
    });
    const unabort = onAbort(signal, () => finish(reject, signal!.reason));
    connection.connect();
    send();
  });
}
