import {
  type ClientFrame,
  type PublishFrame,
  parseFrames,
  type ServerFrame,
  type SubscribeFrame,
} from "../protocol/frames.js";
import type { FakeClock } from "./clock.js";
import { fakeFetch } from "./fetch.js";
import { type FakeRecord, type FakeTopic, fakeTopic } from "./log.js";
import { fakeSocket, type Peer } from "./socket.js";

/** A client's frame, as it came. */
export type Incoming = ClientFrame & FakeRecord & { id: number };

/**
 * What becomes of a frame: `undefined`: the usual; frames: these are the answer;
 * `lost`: it is not even read, `unanswered`: it is acted on, and the connection
 * ends in both; `silence`: nothing.
 */
export type Script = (
  frame: Incoming,
  connection: FakeConnection,
) => ServerFrame[] | "lost" | "unanswered" | "silence" | undefined;

export interface FakeConnection {
  readonly open: boolean;
  readonly token: string | undefined;
  send(...frames: ServerFrame[]): void;
  /** The end of it: 1006 is a connection that is cut. */
  close(code?: number, reason?: string): void;
}

export interface FakeServer {
  readonly url: string;
  readonly WebSocket: typeof WebSocket;
  readonly fetch: typeof fetch;
  /** All that ever were. */
  readonly connections: FakeConnection[];
  /** The addresses of all WebSockets that clients made, refused ones too. */
  readonly dialled: string[];
  /** All frames of clients. */
  readonly received: Incoming[];
  topic(name: string, partitions?: number): FakeTopic;
  /** Decides about each frame, until the next call. */
  script(fn?: Script): void;
  /** What cannot be reached; nothing unless told. */
  down(what: { sockets?: boolean; http?: boolean }): void;
  /** Which tokens count; all unless told. */
  admit(judge: (token: string | undefined) => "ok" | "expired" | "bad"): void;
}

interface Reader {
  sub: string;
  topic: FakeTopic;
  next: number[];
  frame: SubscribeFrame;
  credit: number;
}

const latencyMs = 1;

/** A server in memory, in a fake clock's time, that behaves as the protocol says until a script says otherwise. */
export function fakeServer(clock: FakeClock): FakeServer {
  const topics = new Map<string, FakeTopic>();
  const connections: FakeConnection[] = [];
  const received: Incoming[] = [];
  const dialled: string[] = [];
  const receivers = new Map<Peer, (text: string) => void>();
  const leavers = new Map<Peer, () => void>();
  const deliveries = new Set<() => void>(); // of each open connection
  const state = { script: undefined as Script | undefined, sockets: false, http: false };
  let judge: (token: string | undefined) => "ok" | "expired" | "bad" = () => "ok";

  const deliver = () => {
    for (const fn of deliveries) fn();
  };

  function connect(peer: Peer): void {
    dialled.push(peer.socket.url);
    if (state.sockets) return void clock.after(latencyMs, () => peer.closed(1006, ""));
    const readers: Reader[] = [];
    let open = true;
    let token: string | undefined;
    const send = (...frames: ServerFrame[]) =>
      clock.after(latencyMs, () => open && peer.message(frames.map(text).join("\n")));
    const close = (code = 1006, reason = "") => {
      if (!open) return;
      open = false;
      deliveries.delete(push);
      receivers.delete(peer);
      leavers.delete(peer);
      clock.after(latencyMs, () => peer.closed(code, reason));
    };
    const connection: FakeConnection = {
      get open() {
        return open;
      },
      get token() {
        return token;
      },
      send,
      close,
    };
    const push = () => {
      for (const r of readers) {
        const messages = r.topic.read(r.next, r.frame, r.credit);
        r.credit -= messages.length;
        if (messages.length)
          send({ op: "messages", sub: r.sub, messages }, { op: "cursor", sub: r.sub, cursor: r.topic.cursor(r.next) });
      }
    };

    function act(frame: Incoming): ServerFrame[] {
      const { id } = frame;
      switch (frame.op) {
        case "hello": {
          const verdict = judge(frame.token);
          token = frame.token;
          if (verdict === "ok")
            return [{ op: "welcome", id, connection: `c${connections.length}`, node: "fake", ping: "25s" }];
          clock.after(2 * latencyMs, () => close(verdict === "expired" ? 4003 : 4501, "the token is not valid"));
          return [{ op: "error", id, code: "unauthorized", detail: "the token is not valid", reason: verdict }];
        }
        case "auth":
          token = frame.token;
          return [{ op: "authorized", id }];
        case "unsubscribe":
          readers.splice(
            readers.findIndex((r) => r.sub === frame.sub),
            1,
          );
          return [{ op: "unsubscribed", id, sub: frame.sub }];
        case "credit": {
          const reader = readers.find((r) => r.sub === frame.sub);
          if (reader) reader.credit += frame.add;
          return [];
        }
      }
      if (!("topic" in frame) || frame.op === "join" || frame.op === "request") return []; // groups are a script's
      const topic = topics.get(frame.topic);
      if (!topic) return [{ op: "error", id, code: "topic-not-found", detail: `there is no topic ${frame.topic}` }];
      if (frame.op === "metadata") return [{ op: "metadata", id, topic: frame.topic, layout: topic.layout }];
      if (frame.op === "publish") {
        const outcome = topic.append(frame as PublishFrame & FakeRecord);
        return [{ op: "code" in outcome ? "error" : "published", id, ...outcome }];
      }
      const { next, gap } = topic.resolve(frame);
      const sub = `s${id}`;
      readers.push({ sub, topic, next, frame, credit: frame.credit });
      const recovered = frame.cursor !== undefined && !gap;
      const answer: ServerFrame[] = [{ op: "subscribed", id, sub, cursor: topic.cursor(next), recovered }];
      return gap ? [...answer, { op: "gap", sub, ...gap }] : answer;
    }

    connections.push(connection);
    deliveries.add(push);
    leavers.set(peer, () => close(1000));
    receivers.set(peer, (chunk) =>
      clock.after(latencyMs, () => {
        for (const frame of parseFrames(chunk) as unknown as Incoming[]) {
          if (!open) return;
          received.push(frame);
          const verdict = state.script?.(frame, connection);
          if (verdict === "lost") return close();
          if (verdict === "silence") continue;
          const answers = Array.isArray(verdict) ? verdict : act(frame);
          if (verdict === "unanswered") return close();
          if (answers.length) send(...answers);
        }
        deliver();
      }),
    );
    clock.after(latencyMs, () => peer.open());
  }

  const socket = fakeSocket({
    connected: connect,
    received: (peer, chunk) => receivers.get(peer)?.(chunk),
    left: (peer) => leavers.get(peer)?.(),
  });
  return {
    url: "http://fake",
    WebSocket: socket,
    fetch: fakeFetch({ clock, topics, isDown: () => state.http, changed: deliver, watch: watchIn(deliveries) }),
    connections,
    dialled,
    received,
    topic(name, partitions = 1) {
      const found = topics.get(name) ?? fakeTopic(name, partitions, clock.now);
      topics.set(name, found);
      return found;
    },
    script: (fn) => {
      state.script = fn;
    },
    down({ sockets = state.sockets, http = state.http }) {
      Object.assign(state, { sockets, http });
      if (sockets) for (const c of connections) c.close();
    },
    admit: (fn) => {
      judge = fn;
    },
  };
}

const watchIn = (set: Set<() => void>) => (fn: () => void) => {
  set.add(fn);
  return () => void set.delete(fn);
};

/** A frame as the server writes it: of a run of messages one line, and one for each. */
function text(frame: ServerFrame): string {
  if (!frame.messages) return JSON.stringify(frame);
  const { messages, ...head } = frame;
  return [{ ...head, count: messages.length }, ...messages].map((line) => JSON.stringify(line)).join("\n");
}
