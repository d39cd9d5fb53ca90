import { onAbort } from "../client/abort.js";
import type { Asked } from "../client/connection.js";
import type { Core } from "../client/feature.js";
import { fullJitter } from "../core/backoff.js";
import { errorOf, TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";

/** Something that is asked until there is an answer. */
export interface Inquiry {
  /** The frame of the next try, with so much time left. */
  frame(leftMs: number): Asked;
  timeoutMs: number;
  signal?: AbortSignal;
}

export interface Asker {
  /**
   * Resolves to the answer. A try that is refused for the moment, or whose link is lost, is
   * followed by another one, until the time is up.
   */
  ask(inquiry: Inquiry): Promise<ServerFrame>;
}

const retryMinMs = 50;
const retryMaxMs = 1000;
/** How much later than its deadline the node may still say so. */
const graceMs = 1000;

interface Open {
  send(): void;
  down(): void;
  end(error: TidewireError): void;
}

export function asker({ connection, clock }: Core): Asker {
  const all = new Set<Open>();
  const each = (fn: (open: Open) => void) => [...all].forEach(fn);
  connection.join({
    up: () => each((open) => open.send()),
    down: () => each((open) => open.down()),
    end: (error) => each((open) => open.end(error)),
  });

  return {
    ask: ({ frame, timeoutMs, signal }) =>
      new Promise((resolve, reject) => {
        signal?.throwIfAborted();
        const deadline = clock.now() + timeoutMs;
        let flying = false;
        let doubt = false; // an earlier try may have arrived
        let refusal: TidewireError | undefined; // the last one of the moment
        let failures = 0;
        let retry = () => {};

        const send = () => {
          const leftMs = deadline - clock.now();
          if (flying || connection.state !== "connected" || leftMs < 1) return;
          flying = true;
          connection.ask([[frame(leftMs), answered]]);
        };
        const answered = (answer: ServerFrame) => {
          if (answer.op === "accepted") {
            doubt = true;
            return;
          }
          flying = false;
          if (answer.op !== "error") return finish(() => resolve(answer));
          const error = errorOf({ ...answer });
          const { code } = error;
          // Of an earlier try that nobody responds now says nothing.
          const final = code === "no-responders" ? !doubt : code === "reply-timeout" || !error.retryable;
          if (final) return finish(() => reject(error));
          doubt ||= code === "unknown-outcome";
          refusal = error;
          const ms = error.retryAfterMs ?? fullJitter(failures++, retryMinMs, retryMaxMs, clock.random());
          retry = clock.after(ms, send);
        };
        const over = () => {
          const code = doubt || flying ? "reply-timeout" : "timeout";
          const detail = `no reply within ${timeoutMs} ms`;
          finish(() => reject((!doubt && refusal) || new TidewireError(code, detail, { cause: refusal })));
        };
        let cancel = clock.after(timeoutMs, () => {
          if (flying) cancel = clock.after(graceMs, over);
          else over();
        });
        const finish = (done: () => void) => {
          all.delete(open);
          cancel();
          retry();
          unabort();
          done();
        };
        const open: Open = {
          send,
          down() {
            doubt ||= flying;
            flying = false;
            retry();
          },
          end: (error) => finish(() => reject(error)),
        };
        const unabort = onAbort(signal, () => finish(() => reject(signal!.reason)));
        all.add(open);
        connection.want();
        send();
      }),
  };
}
