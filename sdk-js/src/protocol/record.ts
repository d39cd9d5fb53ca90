import type { PublishOptions } from "../types.js";
import { toBase64 } from "./base64.js";

/**
 * A record's key, headers, type and value as members of a JSON object, without its
 * braces. Encoded when publish is called, so that a retry sends the same whatever
 * became of the value since.
 */
export function encodeRecord(value: unknown, { key, headers, contentType }: PublishOptions): string {
  const bytes = value instanceof Uint8Array;
  const members = JSON.stringify({
    key,
    headers,
    content_type: contentType ?? (bytes ? "application/octet-stream" : undefined),
    ...(bytes ? { value_base64: toBase64(value) } : { value }),
  }).slice(1, -1);
  if (!bytes && JSON.stringify(value) === undefined) throw new TypeError(`a ${typeof value} is no JSON value`);
  return members;
}
