import type { Message } from "../types.js";
import { fromBase64 } from "./base64.js";

/** A message as it is on the wire. */
export interface WireMessage {
  topic: string;
  partition: number;
  offset: number;
  timestamp: string;
  key: string | null;
  content_type: string;
  headers: Record<string, string>;
  value?: unknown;
  value_base64?: string;
  // of a group's member
  delivery?: number;
  lease_ms?: number;
  lease_until?: string;
}

/** The value of a message or reply. */
export const readValue = ({ value, value_base64 }: Pick<WireMessage, "value" | "value_base64">): unknown =>
  value_base64 === undefined ? value : fromBase64(value_base64);

export const toMessage = (m: WireMessage): Message => ({
  topic: m.topic,
  partition: m.partition,
  offset: m.offset,
  timestamp: m.timestamp,
  key: m.key ?? undefined,
  contentType: m.content_type,
  headers: m.headers,
  value: readValue(m),
});
