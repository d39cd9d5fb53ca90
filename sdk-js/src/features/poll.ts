import type { Feature } from "../client/feature.js";
import { TidewireError } from "../error.js";
import type { WireGap } from "../protocol/frames.js";
import type { Http } from "./http.js";
import { httpLink, type Stream } from "./httplink.js";
import { readPage } from "./pages.js";

const waitSeconds = 25;
const pageMessages = 1000;

/** Long polling: for networks that let nothing else through. */
export function poll(): Feature<"transport"> {
  return {
    name: "transport",
    transport: { name: "poll", open: (options, events) => httpLink(options, events, read) },
  };
}

async function read(stream: Stream, http: Http): Promise<void> {
  let recovered = stream.place.cursor !== undefined;
  for (let first = true; !stream.signal.aborted; first = false) {
    await stream.credited();
    // Only one message before there is a cursor: what has one can be resumed in its middle.
    const limit = stream.place.cursor ? Math.min(stream.credit, pageMessages) : 1;
    const wait = first ? undefined : `${waitSeconds}s`;
    try {
      const { messages, cursor } = await readPage(
        http,
        stream.topic,
        { ...stream.filter, ...stream.place, limit, wait },
        stream.signal,
      );
      stream.subscribed(stream.place.cursor ?? (messages.length ? undefined : cursor), recovered);
      stream.messages(messages);
      stream.cursor(cursor);
    } catch (thrown) {
      const gap =
        thrown instanceof TidewireError && thrown.code === "cursor-expired" && (thrown.problem as unknown as WireGap);
      if (!gap) throw thrown;
      recovered = false;
      stream.subscribed(stream.place.cursor, recovered);
      stream.place = { cursor: gap.cursor };
      stream.push({ ...gap, op: "gap" });
    }
  }
}
