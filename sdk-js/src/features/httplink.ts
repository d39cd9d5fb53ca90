import type { Clock } from "../client/clock.js";
import type { TidewireError } from "../error.js";
import type { ClientFrame, ServerFrame, SubscribeFrame } from "../protocol/frames.js";
import type { Layout } from "../protocol/layout.js";
import type { WireMessage } from "../protocol/message.js";
import type { Place } from "../protocol/position.js";
import { uuidv7 } from "../protocol/uuid.js";
import type { End, Link, LinkEvents, LinkOptions } from "../transport/transport.js";
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

/** How deliveries come; it throws where they cannot, and returns when the stream has ended for good. */
export type Read = (stream: Stream, http: Http, clock: Clock) => Promise<void>;

/** How a link ended whose call failed. Only the node can say that the caller is nobody: who has no token just now gets one later. */
export function endOf({ code, message, problem, retryAfterMs }: TidewireError): End {
  const refused = problem?.reason === "expired" ? 4003 : 4501;
  const blocked = problem?.blocked === true;
  return { code: code === "unauthorized" && problem ? refused : 1006, reason: message, retryAfterMs, blocked };
}

/** A link whose ops are HTTP calls. */
export function httpLink(options: LinkOptions, events: LinkEvents, read: Read): Link {
  const { clock } = options;
  const call = http(options);
  const life = new AbortController();
  const streams = new Map<string, { add(credit: number): void; stop(): void }>();
  let lastSub = 0;

  const emit = (frame: ServerFrame) => life.signal.aborted || events.frame(frame);
  const end = (end: End) => {
    if (life.signal.aborted) return;
    life.abort();
    events.end(end);
  };
  const broken = (error: TidewireError) => end(endOf(error));
  const publish = linePublisher(call, emit, broken, life.signal);

  /** Makes a call; its failure answers the frame, or ends the link. */
  async function ask(id: number, path: string, answer: (body: Response) => ServerFrame | Promise<ServerFrame>) {
    try {
      emit(await answer(await call(path, { signal: life.signal })));
    } catch (thrown) {
      refuse(thrown, (refusal) => emit({ ...refusal, id }), broken);
    }
  }

  function subscribe({
    id,
    topic,
    key,
    keys,
    key_prefix,
    partition,
    credit,
    from,
    cursor,
    after,
  }: SubscribeFrame): void {
    if (keys) return void emit({ op: "error", id, code: "network", detail: "keys need a WebSocket" });
    const sub = `h${++lastSub}`;
    const stop = new AbortController();
    const signal = AbortSignal.any([life.signal, stop.signal]);
    let wake = () => {};
    let known = false;
    const stream: Stream = {
      topic,
      filter: { key, key_prefix, partition },
      place: { from, cursor, after },
      credit,
      signal,
      credited: () =>
        new Promise((resolve) => {
          wake = resolve;
          if (stream.credit > 0 || signal.aborted) resolve();
        }),
      subscribed(cursor, recovered) {
        if (known) return;
        known = true;
        emit({ op: "subscribed", id, sub, cursor, recovered });
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
    signal.addEventListener("abort", () => wake());
    streams.set(sub, {
      add(credit) {
        stream.credit += credit;
        wake();
      },
      stop: () => stop.abort(),
    });
    read(stream, call, clock).catch((thrown) => {
      if (signal.aborted) return;
      streams.delete(sub);
      refuse(thrown, (refusal) => (known ? stream.push(refusal) : emit({ ...refusal, id })), broken);
    });
  }

  function perform(frame: ClientFrame): void {
    switch (frame.op) {
      case "hello": // a node that drains wants no new clients
        return void ask(frame.id, "/readyz", () => ({
          op: "welcome",
          id: frame.id,
          connection: uuidv7(clock.now()),
        }));
      case "auth": // every call has the token of its time
        return void queueMicrotask(() => emit({ op: "authorized", id: frame.id }));
      case "metadata":
        return void ask(frame.id, `/topics/${encodeURIComponent(frame.topic)}/metadata`, async (body) => ({
          op: "metadata",
          id: frame.id,
          layout: ((await body.json()) as { layout: Layout }).layout,
        }));
      case "publish":
        return publish(frame);
      case "subscribe":
        return subscribe(frame);
      case "credit":
        return streams.get(frame.sub)?.add(frame.add);
      case "join":
      case "request":
      case "reply":
        return void emit({ op: "error", id: frame.id, code: "network", detail: `a ${frame.op} needs a WebSocket` });
      case "unsubscribe":
        streams.get(frame.sub)?.stop();
        streams.delete(frame.sub);
    }
  }
  return { send: (frames) => frames.forEach(perform), close: () => life.abort() };
}
