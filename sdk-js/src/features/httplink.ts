import type { Clock } from "../client/clock.js";
import { refusedCode } from "../client/connection.js";
import type { TidewireError } from "../error.js";
import type { ClientFrame, ServerFrame, SubscribeFrame } from "../protocol/frames.js";
import type { Layout } from "../protocol/layout.js";
import type { WireMessage } from "../protocol/message.js";
import type { Place } from "../protocol/position.js";
import { uuidv7 } from "../protocol/uuid.js";
import type { Link, LinkEvents, LinkOptions } from "../transport/transport.js";
import { type Http, http } from "./http.js";
import { linePublisher } from "./lines.js";
import { refuse } from "./refusal.js";

/** A subscription of a link over HTTP, as what reads it sees it. */
export interface Stream {
  readonly topic: string;
  /** What it lets through, as parameters. */
  readonly filter: { key?: string; key_prefix?: string; partition?: number };
  /** Behind what was read. */
  place: Place;
  /** Messages that the client takes. */
  credit: number;
  readonly signal: AbortSignal;
  /** Resolves as soon as there is credit. */
  credited(): Promise<void>;
  subscribed(cursor: string | undefined, recovered: boolean): void;
  messages(messages: WireMessage[]): void;
  /** Where it stands, all before it being read. */
  cursor(cursor: string): void;
  push(frame: ServerFrame): void;
}

/** And as its link does. */
interface Running extends Stream {
  wake(): void;
  stop(): void;
}

/** How deliveries come; it throws where they cannot, and returns when the stream has ended for good. */
export type Read = (stream: Stream, http: Http, clock: Clock) => Promise<void>;

/** A link whose ops are HTTP calls. */
export function httpLink(options: LinkOptions, events: LinkEvents, read: Read): Link {
  const { clock } = options;
  const life = new AbortController();
  const call = http({ ...options, signal: life.signal });
  const streams = new Map<string, Running>();
  let lastSub = 0;

  const emit = (frame: ServerFrame) => life.signal.aborted || events.frame(frame);
  /** A call that fails so ends the link. Only the node can say that the caller is nobody: who has no token just now gets one later. */
  const broken = ({ code, message: reason, problem, retryAfterMs }: TidewireError) => {
    if (life.signal.aborted) return;
    life.abort();
    const refused = code === "unauthorized" && problem;
    const blocked = problem?.blocked === true;
    events.end({ code: refused ? refusedCode(problem.reason) : 1006, reason, retryAfterMs, blocked });
  };
  const publish = linePublisher(call, emit, broken, life.signal);

  /** Makes a call; its failure answers the frame, or ends the link. */
  async function ask(id: number, path: string, answer: (body: Response) => ServerFrame | Promise<ServerFrame>) {
    try {
      emit({ ...(await answer(await call(path))), id });
    } catch (thrown) {
      refuse(thrown, (refusal) => emit({ ...refusal, id }), broken);
    }
  }

  function subscribe({ id, topic, key, key_prefix, partition, credit, from, cursor, after }: SubscribeFrame): void {
    const sub = `h${++lastSub}`;
    const control = new AbortController();
    const signal = AbortSignal.any([life.signal, control.signal]);
    let known = false;
    const stream: Running = {
      topic,
      filter: { key, key_prefix, partition },
      place: { from, cursor, after },
      credit,
      signal,
      wake() {},
      stop: () => control.abort(),
      credited: () =>
        new Promise((resolve) => {
          stream.wake = resolve;
          if (stream.credit > 0 || signal.aborted) resolve();
        }),
      subscribed(cursor, recovered) {
        if (!known) emit({ op: "subscribed", id, sub, cursor, recovered });
        known = true;
      },
      messages(messages) {
        if (!messages.length) return;
        stream.credit -= messages.length;
        const { place } = stream;
        if (place.cursor)
          place.after = { ...place.after, ...Object.fromEntries(messages.map((m) => [m.partition, m.offset])) };
        stream.push({ op: "messages", messages });
      },
      cursor(cursor) {
        stream.place = { cursor };
        stream.push({ op: "cursor", cursor });
      },
      push: (frame) => emit({ ...frame, sub }),
    };
    signal.addEventListener("abort", () => stream.wake());
    streams.set(sub, stream);
    read(stream, call, clock).catch((thrown) => {
      if (signal.aborted) return;
      streams.delete(sub);
      refuse(thrown, (refusal) => emit({ ...refusal, ...(known ? { sub } : { id }) }), broken);
    });
  }

  function perform(frame: ClientFrame): void {
    const { op } = frame;
    const stream = streams.get((frame as { sub?: string }).sub!);
    if (op === "publish") publish(frame);
    else if (op === "subscribe" && !frame.keys) subscribe(frame);
    else if (op === "hello")
      // A node that drains wants no new clients.
      ask(frame.id, "/readyz", () => ({ op: "welcome", connection: uuidv7(clock.now()) }));
    else if (op === "metadata")
      ask(frame.id, `/topics/${encodeURIComponent(frame.topic)}/metadata`, async (body) => {
        const { layout } = (await body.json()) as { layout: Layout };
        return { op, layout };
      });
    else if (op === "auth")
      queueMicrotask(() => emit({ op: "authorized", id: frame.id })); // every call has the token of its time
    else if (op === "credit") {
      if (!stream) return;
      stream.credit += frame.add;
      stream.wake();
    } else if (op === "unsubscribe") {
      stream?.stop();
      streams.delete(frame.sub);
    } else emit({ op: "error", id: frame.id, code: "network", detail: `${op} needs a WebSocket` });
  }
  return { send: (frames) => frames.forEach(perform), close: () => life.abort() };
}
