import { onAbort } from "../client/abort.js";
import type { Clock } from "../client/clock.js";
import type { Feature } from "../client/feature.js";
import { errorOf, type Problem, TidewireError } from "../error.js";
import { milliseconds } from "../protocol/duration.js";
import { eventParser, type ServerEvent } from "../protocol/events.js";
import type { ServerFrame, WireGap } from "../protocol/frames.js";
import type { WireMessage } from "../protocol/message.js";
import type { Http } from "./http.js";
import { httpLink, type Stream } from "./httplink.js";
import { afterText } from "./pages.js";

/** A stream says something at once, and then every 15 s. */
const firstMs = 10_000;
const silenceMs = 45_000;

/** Server-sent events by `fetch`, since an EventSource can send no token. */
export function sse(): Feature<"transport"> {
  return {
    name: "transport",
    transport: { name: "sse", open: (options, events) => httpLink(options, events, read) },
  };
}

async function read(stream: Stream, http: Http, clock: Clock): Promise<void> {
  while (!stream.signal.aborted) {
    await stream.credited();
    await readOnce(stream, http, clock);
  }
}

/** Reads one answer to its end: the node ends it where its reader is slow. */
async function readOnce(stream: Stream, http: Http, clock: Clock): Promise<void> {
  stream.signal.throwIfAborted();
  const { after, ...place } = stream.place;
  const control = new AbortController(); // of this answer: what listens to it goes with it
  let cancel = () => {};
  const unabort = onAbort(stream.signal, () => {
    cancel(); // engines take their time to end the read
    control.abort();
  });
  try {
    const answer = await http(`/topics/${encodeURIComponent(stream.topic)}/events`, {
      query: { ...stream.filter, ...place, after: afterText(after) },
      headers: { Accept: "text/event-stream" },
      signal: control.signal,
      stream: true,
    });
    const reader = answer.body!.getReader();
    const parse = eventParser();
    let silent = true;
    for (;;) {
      await stream.credited();
      stream.signal.throwIfAborted();
      cancel = clock.after(silent ? firstMs : silenceMs, () => void reader.cancel());
      const { done, value } = await reader.read().finally(cancel);
      if (done) break;
      silent = false;
      deliver(stream, parse(value), place.cursor !== undefined);
    }
    if (silent) throw new TidewireError("network", "nothing came of the stream", { problem: { blocked: true } });
  } finally {
    unabort();
    control.abort();
  }
}

function deliver(stream: Stream, events: ServerEvent[], resumed: boolean): void {
  let batch: WireMessage[] = [];
  const flush = () => {
    stream.messages(batch);
    batch = [];
  };
  for (const { event, data, id } of events) {
    if (event === "message") batch.push(JSON.parse(data) as WireMessage);
    else flush();
    if (event === "gap") {
      const gap = JSON.parse(data) as WireGap;
      stream.subscribed(gap.cursor, false); // mostly it comes first of all
      stream.place = { cursor: gap.cursor };
      stream.push({ ...gap, op: "gap" });
    } else if (event === "closing") leave(JSON.parse(data) as ServerFrame);
    else if (event === "error") fail(stream, JSON.parse(data) as Problem);
    else if (id) {
      stream.subscribed(id, resumed); // the first event of all is where the stream begins
      flush();
      stream.cursor(id);
    }
  }
  flush();
}

/** Of one partition nothing more comes, and the others go on; or the stream has ended for good. */
function fail(stream: Stream, problem: Problem): void {
  if (problem.partition === undefined) throw errorOf(problem);
  stream.push({ op: "error", ...problem } as ServerFrame);
}

/** The node ends the stream: because its token is over, which the next call has anew, or because it drains. */
function leave({ reason = "", retry_after }: ServerFrame): void {
  if (reason === "token expired") return;
  throw new TidewireError("network", reason, { retryAfterMs: milliseconds(retry_after) });
}
