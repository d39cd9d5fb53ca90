import type { Page, PageQuery } from "../protocol/page.js";
import type { Place } from "../protocol/position.js";
import type { Http } from "./http.js";

export const afterText = (after: Place["after"]): string | undefined =>
  after &&
  Object.entries(after)
    .map(([partition, offset]) => `${partition}:${offset}`)
    .join();

export async function readPage(http: Http, topic: string, query: PageQuery, signal?: AbortSignal): Promise<Page> {
  const { after, ...rest } = query;
  const answer = await http(`/topics/${encodeURIComponent(topic)}`, {
    query: { ...rest, after: afterText(after) },
    signal,
  });
  return (await answer.json()) as Page;
}
