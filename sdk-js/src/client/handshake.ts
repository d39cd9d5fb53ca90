import { asError, errorOf, type TidewireError } from "../error.js";
import type { ServerFrame } from "../protocol/frames.js";
import type { End, Link, LinkOptions, Transport } from "../transport/transport.js";
import type { Tokens } from "./tokens.js";

export interface Handshake {
  transport: Transport;
  options: LinkOptions;
  tokens: Tokens;
  /** Of the hello. */
  id: number;
  timeoutMs: number;
  opened(link: Link, welcome: ServerFrame): void;
  /** It did not open. */
  failed(end: End, error?: TidewireError): void;
  /** What comes of it once it is open. */
  frame(frame: ServerFrame): void;
  end(end: End): void;
}

/** Opens a link and says who is calling. What it returns gives up before the link is open. */
export function handshake(h: Handshake): () => void {
  let link: Link | undefined;
  let phase: "opening" | "open" | "over" = "opening";
  const leave = () => {
    phase = "over";
    cancel();
    link?.close();
  };
  const fail = (end: End, error?: TidewireError) => {
    if (phase !== "opening") return;
    leave();
    h.failed(end, error);
  };
  const cancel = h.options.clock.after(h.timeoutMs, () =>
    fail({ code: 4002, reason: `${h.transport.name} did not open in time` }),
  );

  const begin = (token: string | undefined) => {
    if (phase !== "opening") return;
    link = h.transport.open(h.options, {
      end: (end) => (phase === "open" ? h.end(end) : fail(end)),
      frame(frame) {
        if (phase === "open") return h.frame(frame);
        const mine = frame.id === h.id;
        // A node that asks nobody says welcome by itself, and refuses a token after it.
        if (frame.op === "welcome" && (mine || !token)) {
          phase = "open";
          cancel();
          h.opened(link!, frame);
        } else if (frame.op === "error" && mine) {
          const error = errorOf({ ...frame });
          const code = error.retryable ? 1006 : frame.reason === "expired" ? 4003 : 4501;
          fail({ code, reason: error.message, retryAfterMs: error.retryAfterMs }, error);
        }
      },
    });
    link.send([{ op: "hello", id: h.id, client: "tidewire-js", token }]);
  };
  h.tokens
    .get()
    .then(begin)
    .catch((thrown) => {
      const error = asError(thrown, "network");
      fail({ code: 1006, reason: error.message }, error);
    });
  return () => {
    if (phase === "opening") leave();
  };
}
