import type { Acks } from "../types.js";
import type { Layout } from "./layout.js";
import type { WireMessage } from "./message.js";
import type { Place } from "./position.js";

/** A gap as streams and polls tell of it. */
export interface WireGap {
  reason: string;
  requested: string;
  earliest: string;
  end: string;
  cursor: string;
}

/** What all answers and pushes may carry; which of it, `op` tells. */
export interface ServerFrame extends Partial<WireGap> {
  op: string;
  id?: number;
  sub?: string;
  // welcome
  connection?: string;
  node?: string;
  ping?: string;
  limits?: { max_frame_bytes?: number };
  // published
  topic?: string;
  partition?: number;
  offset?: number;
  timestamp?: string;
  duplicate?: boolean;
  // subscribed, messages
  recovered?: boolean;
  messages?: WireMessage[];
  // joined, assigned, revoked, acked
  member?: string;
  partitions?: number[];
  stale?: Array<{ partition: number; offset: number; reason: string }>;
  // reply
  status?: number;
  value?: unknown;
  value_base64?: string;
  // metadata, authorized
  layout?: Layout;
  expires?: string;
  // error, closing
  code?: string;
  title?: string;
  detail?: string;
  retry_after?: string;
}

export interface PublishFrame {
  op: "publish";
  id: number;
  topic: string;
  partition: number;
  producer?: string;
  sequence?: number;
  acks?: Acks;
  /** Further members, as JSON without braces: see record.ts. */
  body: string;
}

export interface SubscribeFrame extends Place {
  op: "subscribe";
  id: number;
  topic: string;
  key?: string;
  keys?: string[];
  key_prefix?: string;
  partition?: number;
  credit: number;
}

/** Asks whoever responds to a topic. `timeout` is what is left of it. */
export interface RequestFrame {
  op: "request";
  id: number;
  topic: string;
  correlation: string;
  timeout: string;
  body: string;
}

export interface ReplyFrame {
  op: "reply";
  id: number;
  to: string;
  /** 400 to 599: the request failed. */
  status?: number;
  body: string;
}

/** What becomes of a leased record. */
export interface SettleFrame {
  op: "ack" | "nack" | "reject" | "extend";
  id: number;
  sub: string;
  partition: number;
  offset: number;
  delay?: string;
  reason?: string;
}

export type ClientFrame =
  | PublishFrame
  | SettleFrame
  | RequestFrame
  | ReplyFrame
  | { op: "join"; id: number; topic: string; group: string; member?: string; credit: number }
  | { op: "leave"; id: number; sub: string }
  | SubscribeFrame
  | { op: "hello"; id: number; client: string; token?: string }
  | { op: "auth"; id: number; token: string }
  | { op: "metadata"; id: number; topic: string }
  | { op: "unsubscribe"; id: number; sub: string }
  | { op: "credit"; sub: string; add: number };

/**
 * A frame as a line. The value stands last: the server knows the members before
 * the place where a line breaks.
 */
export function lineOf(frame: ClientFrame): string {
  if (!("body" in frame)) return JSON.stringify(frame);
  const { body, ...head } = frame;
  return `${JSON.stringify(head).slice(0, -1)},${body}}`;
}

/** The frames in a text: a run of messages is one frame, with its lines in `messages`. */
export function parseFrames(text: string): ServerFrame[] {
  const frames: ServerFrame[] = text.split("\n").map((line) => JSON.parse(line));
  frames.forEach((frame, i) => {
    const { op, count } = frame as { op: string; count?: number };
    if (op === "messages") frame.messages = frames.splice(i + 1, count!) as unknown[] as WireMessage[];
  });
  return frames;
}
