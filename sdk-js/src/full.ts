import { createClient as create } from "./client/client.js";
import type { Added } from "./client/feature.js";
import { history } from "./features/history.js";
import { poll } from "./features/poll.js";
import { requests } from "./features/requests.js";
import { sse } from "./features/sse.js";
import { worker } from "./features/worker.js";
import type { Client, ClientOptions, TopicMap } from "./types.js";

export * from "./index.js";

type Everything = "history" | "worker" | "requests" | "transport";

/** The client with all its features, where its size does not matter. */
export const createClient = <T extends TopicMap = TopicMap>(
  options: Omit<ClientOptions, "use">,
): Client<T> & Added<T, Everything> =>
  create<T, Everything>({ ...options, use: [sse(), poll(), history(), worker(), requests()] });
