import type { TidewireError } from "../error.js";
import type { PublishFrame, ServerFrame } from "../protocol/frames.js";
import type { Http } from "./http.js";
import { refuse } from "./refusal.js";

/**
 * Publishes over HTTP. What is waiting for a partition goes as one body of lines, one
 * call at a time, so order is kept and sequence numbers count up by line.
 */
export function linePublisher(
  http: Http,
  answer: (frame: ServerFrame) => void,
  broken: (error: TidewireError) => void,
  signal: AbortSignal,
): (frame: PublishFrame) => void {
  const queues = new Map<string, PublishFrame[]>(); // by topic and partition; there while a call is under way

  async function send(queue: PublishFrame[]): Promise<void> {
    const first = queue[0]!;
    const { topic, partition, acks, producer, sequence } = first;
    let n = 1;
    while (n < queue.length && follows(queue[n]!, first, n)) n++;
    const batch = queue.splice(0, n);
    const headers: Record<string, string> = { "Content-Type": "application/x-ndjson" };
    if (producer) {
      headers["Tidewire-Producer"] = producer;
      headers["Tidewire-Sequence"] = String(sequence);
    }
    const body = batch.map((frame) => `{${frame.body}}\n`).join("");
    let lines: string[];
    try {
      const call = { method: "POST", query: { partition, acks }, headers, body };
      lines = (await (await http(`/topics/${encodeURIComponent(topic)}`, call)).text()).trimEnd().split("\n");
    } catch (thrown) {
      return refuse(
        thrown,
        (refusal) => {
          for (const { id } of batch) answer({ ...refusal, id });
        },
        broken,
      );
    }
    batch.forEach(({ id }, i) => {
      const line = JSON.parse(lines[i] ?? '{"code":"unknown-outcome"}') as ServerFrame;
      answer({ ...line, op: line.code ? "error" : "published", id });
    });
  }

  return (frame) => {
    const name = `${frame.partition} ${frame.topic}`;
    const queue = queues.get(name);
    if (queue) return void queue.push(frame);
    const fresh = [frame];
    queues.set(name, fresh);
    // What is published in the same go leaves together.
    queueMicrotask(async () => {
      while (fresh.length && !signal.aborted) await send(fresh);
      queues.delete(name);
    });
  };
}

/** Whether a frame can be line n behind the first one of a call. */
const follows = (frame: PublishFrame, first: PublishFrame, n: number): boolean =>
  frame.acks === first.acks &&
  frame.producer === first.producer &&
  (first.sequence === undefined || frame.sequence === first.sequence + n);
