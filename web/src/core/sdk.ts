import type { Message as SdkMessage } from "tidewire";
import type { Message } from "./wire.js";

/** A message of the SDK as the API has it; the SDK does not tell a tombstone from a null. */
export function fromSdk({ contentType, key, value, ...m }: SdkMessage): Message {
  const rest = { ...m, headers: { ...m.headers }, key: key ?? null, content_type: contentType };
  return value instanceof Uint8Array ? { ...rest, value_base64: base64(value) } : { ...rest, value };
}

const base64 = (bytes: Uint8Array): string => btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
