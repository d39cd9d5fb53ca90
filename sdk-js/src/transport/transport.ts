import type { Clock } from "../client/clock.js";
import type { Tokens } from "../client/tokens.js";
import type { ClientFrame, ServerFrame } from "../protocol/frames.js";
import type { TransportName } from "../types.js";

/** How a link ended. */
export interface End {
  code: number;
  reason: string;
  retryAfterMs?: number;
  /** Something on the way lets this transport through only in part: it counts as one that does not open. */
  blocked?: boolean;
}

/**
 * A way to the server that is being opened, or is open. Whatever carries it, it
 * speaks the frames of the WebSocket, so that nobody else knows which one it is.
 */
export interface Link {
  send(frames: ClientFrame[]): void;
  /** Ends it; nothing is heard of it any more. */
  close(): void;
}

/** What a link tells: frames, the first of which is `welcome`, and its end, once. */
export interface LinkEvents {
  frame(frame: ServerFrame): void;
  end(end: End): void;
}

export interface LinkOptions {
  url: string;
  tokens: Tokens;
  clock: Clock;
  fetch: typeof fetch;
  WebSocket: typeof WebSocket;
  /** The end of the client. */
  signal: AbortSignal;
}

export interface Transport {
  readonly name: TransportName;
  open(options: LinkOptions, events: LinkEvents): Link;
}
