import { createClient as create } from "./client/client.js";
import type { Added } from "./client/feature.js";
import { history } from "./features/history.js";
import { poll } from "./features/poll.js";
import { requests } from "./features/requests.js";
import { sse } from "./features/sse.js";
import { type SharedTabsOptions, sharedTabs } from "./features/tabs.js";
import { worker } from "./features/worker.js";
import type { Client, ClientOptions, TopicMap } from "./types.js";

export * from "./index.js";

type Everything = "history" | "worker" | "requests" | "transport";

export interface FullOptions extends Omit<ClientOptions, "use"> {
  /** Whether all tabs of a browser share one connection. */
  sharedTabs?: boolean | SharedTabsOptions;
}

/** The client with all its features, where its size does not matter. */
export function createClient<T extends TopicMap = TopicMap>({
  sharedTabs: tabs,
  ...options
}: FullOptions): Client<T> & Added<T, Everything> {
  const use = [sse(), poll(), history(), worker(), requests()];
  if (tabs) use.push(sharedTabs(tabs === true ? {} : tabs));
  return create<T, Everything>({ ...options, use });
}
