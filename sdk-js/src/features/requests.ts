import type { Core, Feature } from "../client/feature.js";
import { readValue } from "../protocol/message.js";
import { encodeRecord } from "../protocol/record.js";
import { uuidv7 } from "../protocol/uuid.js";
import type { RequestOptions } from "../types.js";
import { ask } from "./asker.js";
import { joined } from "./member.js";
import { answering, responderError } from "./responder.js";

const defaultTimeoutMs = 5000;

/** Requests and their replies, over WebSocket: `client.request` and `client.respond`. */
export function requests(): Feature<"requests"> {
  return {
    name: "requests",
    install(core: Core) {
      return {
        async request<R>(
          topic: string,
          value: unknown,
          { timeoutMs = defaultTimeoutMs, correlationId, signal, ...opts }: RequestOptions = {},
        ) {
          core.admit();
          const correlation = correlationId ?? uuidv7(core.clock.now());
          const body = encodeRecord(value, opts);
          const frame = (leftMs: number) =>
            ({ op: "request", topic, correlation, timeout: `${Math.floor(leftMs)}ms`, body }) as const;
          const reply = await ask(core, { frame, timeoutMs, signal });
          const answer = readValue(reply);
          if (reply.status! >= 400) throw responderError(reply.status!, answer);
          return answer as R;
        },
        respond(topic, handler, { group = "responders", ...opts } = {}) {
          core.admit();
          return joined(core, group, topic, answering(core, handler), opts, {
            mode: "shared",
            from: "latest", // nobody waits for the replies to what is there by now
          });
        },
      };
    },
  };
}
