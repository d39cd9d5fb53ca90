import type { Topic } from "./wire.js";

/** A setting of a topic that can be changed. */
export interface Setting {
  name: string;
  label: string;
  hint?: string;
  kind: "number" | "text" | "boolean" | readonly string[]; // strings: one of them
  of(t: Topic): string | number | boolean;
}

export const settings: Setting[] = [
  { name: "replicas", label: "Replicas", kind: "number", of: (t) => t.replicas },
  { name: "min_insync", label: "Replicas that must be in sync", kind: "number", of: (t) => t.min_insync },
  { name: "age", label: "Kept for", hint: "0 is for ever", kind: "text", of: (t) => t.retention.age },
  {
    name: "bytes",
    label: "Bytes kept of a partition",
    hint: "0 is no bound",
    kind: "number",
    of: (t) => t.retention.bytes,
  },
  { name: "max_message_bytes", label: "Bytes of a message at most", kind: "number", of: (t) => t.max_message_bytes },
  { name: "durability", label: "Durability", kind: ["fsync", "replicated"], of: (t) => t.durability },
  { name: "idempotency_window", label: "Repeats are known for", kind: "text", of: (t) => t.idempotency_window },
  { name: "unclean", label: "Elect a replica that was not in sync", kind: "boolean", of: (t) => t.unclean },
];

/** What of a form differs from the topic, as a PATCH of it says. A box that is not ticked is null. */
export function changes(topic: Topic, typedOf: (name: string) => string | null): Record<string, unknown> {
  const change: Record<string, unknown> = {};
  const retention: Record<string, unknown> = {};
  for (const s of settings) {
    const is = s.of(topic);
    const typed = typedOf(s.name);
    const now = s.kind === "boolean" ? typed !== null : s.kind === "number" ? Number(typed) : (typed ?? "").trim();
    if (now === is) continue;
    if (s.name === "age" || s.name === "bytes") retention[s.name] = now;
    else change[s.name] = now;
  }
  return Object.keys(retention).length ? { ...change, retention: { ...topic.retention, ...retention } } : change;
}
