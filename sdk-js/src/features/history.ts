import type { Feature } from "../client/feature.js";
import type { CatchUp } from "../client/subscription.js";
import { errorOf } from "../error.js";
import { toMessage } from "../protocol/message.js";
import { placeOf } from "../protocol/position.js";
import type { HistoryOptions, Message } from "../types.js";
import { type Http, http } from "./http.js";
import { readPage } from "./pages.js";

const pageMessages = 1000;
const checkBytes = 64 << 10;

/** Reads the log over HTTP: `client.history`, and subscriptions that say when they have caught up. */
export function history(): Feature<"history"> {
  return {
    name: "history",
    install(core) {
      const call = http(core);
      const untilEnd = (signal?: AbortSignal) => signal && AbortSignal.any([signal, core.signal]);
      core.catchUp = catchUp(call);
      return {
        history(topic, opts = {}) {
          core.admit();
          return pages(call, topic, { ...opts, signal: untilEnd(opts.signal) }) as AsyncIterable<Message<never>>;
        },
      };
    },
  };
}

/** Reads the log to its end, page by page. */
async function* pages(call: Http, topic: string, opts: HistoryOptions): AsyncGenerator<Message> {
  const { from = "earliest", key, keyPrefix, partition, limit = Infinity, signal } = opts;
  let place = placeOf(from);
  for (let left = limit; left > 0; ) {
    const query = { ...place, key, key_prefix: keyPrefix, partition, limit: Math.min(left, pageMessages) };
    const { messages, cursor, end, unavailable } = await readPage(call, topic, query, signal);
    for (const m of messages) yield toMessage(m);
    if (unavailable) throw errorOf(unavailable[0]!.problem);
    if (end) return;
    left -= messages.length;
    place = { cursor };
  }
}

/**
 * Asks from time to time what there is beyond what was handed out, until that is all
 * there is: once that is handed out too, the reader has caught up.
 */
const catchUp =
  (call: Http): CatchUp =>
  (reader) => {
    const seen = new Map<number, number>(); // the last offsets handed out, by partition
    let goal: Map<number, number> | undefined; // those that have to be
    let before = ""; // where it stood when it was asked for last
    const arrive = () => {
      if (goal && [...goal].every(([partition, offset]) => seen.get(partition)! >= offset)) reader.caughtUp();
    };
    const check = () => {
      const { op, topic, credit, keys, ...rest } = reader.frame();
      const query = { ...rest, limit: credit, max_bytes: checkBytes };
      const place = JSON.stringify(query);
      if (place === before) return reader.later(check);
      readPage(call, topic, query).then(
        ({ messages, end }) => {
          before = place;
          if (!end) return reader.later(check);
          goal = new Map(messages.map((m) => [m.partition, m.offset]));
          arrive();
        },
        () => reader.later(check),
      );
    };
    check();
    return ({ op, partition, offset }) => {
      if (op === "gap") seen.clear();
      else if (!op) seen.set(partition, offset);
      arrive();
    };
  };
