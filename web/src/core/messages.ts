import type { Message } from "./wire.js";

const previewLength = 400;

/** The id of a record in its topic. */
export const place = (m: Message): string => `${m.partition}:${m.offset}`;

/** The bytes of a value that is neither JSON nor text. */
export const rawBytes = (m: Message): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(m.value_base64 ?? ""), (c) => c.charCodeAt(0));

/** A value as text: what was published, but for the blanks of JSON. */
export function valueText(m: Message): string {
  if (m.value_base64 !== undefined) return m.value_base64;
  return isText(m) ? String(m.value) : JSON.stringify(m.value);
}

/** Whether the value is text rather than JSON. */
export const isText = (m: Message): boolean => /^text\//i.test(m.content_type) && typeof m.value === "string";

/** One line that tells a value from others. */
export function preview(m: Message): { text: string; odd: boolean } {
  if (m.tombstone) return { text: "tombstone: the key's record is deleted", odd: true };
  if (m.value_base64 !== undefined) return { text: `${rawBytes(m).length} bytes of ${m.content_type}`, odd: true };
  const text = valueText(m);
  return { text: text.length > previewLength ? `${text.slice(0, previewLength)}…` : text, odd: false };
}

/** A value over several lines. */
export const pretty = (m: Message): string =>
  m.value_base64 !== undefined || isText(m) ? valueText(m) : JSON.stringify(m.value, null, 2);

/** Bytes as offsets, hex and ASCII, sixteen a line. */
export function hex(bytes: Uint8Array, limit = 4096): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, limit); at += 16) {
    const row = [...bytes.subarray(at, Math.min(at + 16, limit))];
    const pairs = row.map((b) => b.toString(16).padStart(2, "0")).join(" ");
    const signs = row.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${pairs.padEnd(47)}  ${signs}`);
  }
  if (bytes.length > limit) lines.push(`… ${bytes.length - limit} bytes more`);
  return lines.join("\n");
}

export const valueBytes = (m: Message): Uint8Array =>
  m.value_base64 !== undefined ? rawBytes(m) : new TextEncoder().encode(valueText(m));

export interface Filter {
  /** One key, or all that begin with what stands before a `*`. The node does this. */
  key: string;
  /** `name` or `name=part of the value`. */
  header: string;
  /** A part of the value, or `path.to.member=value` of JSON. */
  text: string;
}

/** The query by which the node filters keys. */
export function keyQuery(key: string): { key?: string; key_prefix?: string } {
  if (key === "" || key === "*") return {};
  return key.endsWith("*") ? { key_prefix: key.slice(0, -1) } : { key };
}

/** What the node does not filter by: headers and values. */
export function matches(m: Message, { header, text }: Filter): boolean {
  return (header === "" || hasHeader(m, header)) && (text === "" || hasText(m, text));
}

function hasHeader({ headers }: Message, wanted: string): boolean {
  const [name = "", part = ""] = wanted.split(/=(.*)/s);
  return Object.entries(headers).some(([k, v]) => k.toLowerCase() === name.trim().toLowerCase() && v.includes(part));
}

function hasText(m: Message, wanted: string): boolean {
  if (valueText(m).includes(wanted)) return true;
  const [path = "", part] = wanted.split(/=(.*)/s);
  if (part === undefined || m.value_base64 !== undefined || !/^[\w$.[\]-]+$/.test(path)) return false;
  let at: unknown = m.value;
  for (const step of path.split(/[.[\]]+/).filter(Boolean)) {
    if (typeof at !== "object" || at === null) return false;
    at = (at as Record<string, unknown>)[step];
  }
  return at !== undefined && (typeof at === "string" ? at : JSON.stringify(at)) === part;
}

/** The newest first; records of one partition always in the order of their offsets. */
export const newestFirst = (a: Message, b: Message): number =>
  a.partition === b.partition
    ? b.offset - a.offset
    : b.timestamp.localeCompare(a.timestamp) || b.partition - a.partition;

export interface Window {
  partition: number;
  from: number;
  /** Exclusive. */
  to: number;
}

/**
 * The next records to look at, going back from the ends in `tops`: each partition gives
 * its share of `size`, and those with less leave the rest to the others. With `empty` those
 * that have nothing are among them too.
 */
export function windowsBack(
  tops: readonly { partition: number; earliest: number; top: number }[],
  size: number,
  empty = false,
): Window[] {
  const list = tops
    .filter((p) => empty || p.top > p.earliest)
    .sort((a, b) => a.top - a.earliest - (b.top - b.earliest));
  let left = Math.max(size, list.length);
  return list.map((p, i) => {
    const share = Math.min(p.top - p.earliest, Math.max(1, Math.floor(left / (list.length - i))));
    left -= share;
    return { partition: p.partition, from: p.top - share, to: p.top };
  });
}

/** A record as a line that publishes it again, as it was. */
export function toLine(m: Message): string {
  const { key, headers, content_type } = m;
  const record = {
    ...(key === null ? {} : { key }),
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => !/^tidewire-/i.test(name))),
    content_type,
    ...(m.tombstone
      ? { tombstone: true }
      : m.value_base64 !== undefined
        ? { value_base64: m.value_base64 }
        : { value: m.value }),
  };
  if (m.tombstone) delete (record as { content_type?: string }).content_type;
  return JSON.stringify(record);
}

export interface Published {
  partition?: number;
  offset?: number;
  code?: string;
  detail?: string;
}

/** What became of each line that was published, and of how many. */
export function outcome(answer: string): { kept: number; refused: Published[] } {
  const lines = answer
    .split("\n")
    .filter(Boolean)
    .map((l) => JSON.parse(l) as Published);
  return { kept: lines.filter((l) => l.code === undefined).length, refused: lines.filter((l) => l.code !== undefined) };
}

/** How a record died, of what its dead-letter topic says of it; undefined of a record that did not. */
export function death(
  m: Message,
): { reason: string; topic: string; place: string; group: string; deliveries: string } | undefined {
  const h = Object.fromEntries(Object.entries(m.headers).map(([k, v]) => [k.toLowerCase(), v]));
  if (h["tidewire-dead-topic"] === undefined) return undefined;
  return {
    reason: h["tidewire-dead-reason"] ?? "",
    topic: h["tidewire-dead-topic"],
    place: `${h["tidewire-dead-partition"]}:${h["tidewire-dead-offset"]}`,
    group: h["tidewire-dead-group"] ?? "",
    deliveries: h["tidewire-dead-deliveries"] ?? "",
  };
}

/** How often each text is there, the most frequent first. */
export function tally(texts: readonly string[]): [text: string, times: number][] {
  const times = new Map<string, number>();
  for (const t of texts) times.set(t, (times.get(t) ?? 0) + 1);
  return [...times].sort((a, b) => b[1] - a[1]);
}

/** Headers typed as lines of `name: value`; throws at one that is none. */
export function parseHeaders(text: string): Record<string, string> | undefined {
  const lines = text.split("\n").filter((l) => l.trim() !== "");
  if (!lines.length) return undefined;
  return Object.fromEntries(
    lines.map((line) => {
      const cut = line.indexOf(":");
      if (cut < 1) throw new Error(`“${line}” is not a header: write name: value.`);
      return [line.slice(0, cut).trim(), line.slice(cut + 1).trim()];
    }),
  );
}
