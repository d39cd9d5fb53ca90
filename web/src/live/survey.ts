// All groups of all topics. The API lists groups by topic, and says how far one has come
// in its description alone, so this is many calls: a few at a time, and not of more topics
// than a node is glad to answer for.

import type { Group, Topic } from "../core/wire.js";
import { api, at } from "./api.js";

/** Topics whose groups are asked for. */
export const mostTopics = 200;
const atOnce = 4;

export const listTopics = async (signal: AbortSignal): Promise<Topic[]> =>
  (await api<{ topics: Topic[] }>("/topics/", { signal })).topics.sort((a, b) => a.name.localeCompare(b.name));

/** Runs the jobs, a few at a time, and gives their answers in order. */
async function few<A, B>(list: readonly A[], job: (a: A) => Promise<B>): Promise<B[]> {
  const answers: B[] = [];
  let next = 0;
  const worker = async () => {
    while (next < list.length) {
      const i = next++;
      answers[i] = await job(list[i]!);
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, list.length) }, worker));
  return answers;
}

/** The groups of one topic, each with its partitions. */
export async function groupsOf(topic: string, signal: AbortSignal): Promise<Group[]> {
  const { groups } = await api<{ groups: Group[] }>(`${at("groups", topic)}/`, { signal });
  return few(groups, (g) => api<Group>(at("groups", topic, g.group), { signal }).catch(() => g)); // it may be forgotten meanwhile
}

/** The groups of topics; a topic whose groups may not be seen, or that is gone, has none. */
export async function survey(topics: readonly Topic[], signal: AbortSignal): Promise<Map<string, Group[]>> {
  const asked = topics.filter((t) => !t.name.startsWith("_")).slice(0, mostTopics);
  const lists = await few(asked, (t) => groupsOf(t.name, signal).catch(() => []));
  return new Map(asked.map((t, i) => [t.name, lists[i]!]));
}
