import { count, milliseconds, several } from "./format.js";
import type { Alert, Node, Nodes, Topic } from "./wire.js";

export interface Totals {
  alive: number;
  nodes: number;
  connections: number;
  inRecords: number;
  inBytes: number;
  outMessages: number;
  outBytes: number;
  used: number;
  free: number;
  led: number;
  versions: string[];
  /** Names of nodes that did not answer: the sums lack them. */
  silent: string[];
}

export function totals({ nodes }: Nodes): Totals {
  const sum = (f: (n: Node) => number | undefined) => nodes.reduce((s, n) => s + (f(n) ?? 0), 0);
  return {
    alive: nodes.filter((n) => n.state === "alive").length,
    nodes: nodes.length,
    connections: sum((n) => n.connections),
    inRecords: sum((n) => n.rates?.in_records),
    inBytes: sum((n) => n.rates?.in_bytes),
    outMessages: sum((n) => n.rates?.out_messages),
    outBytes: sum((n) => n.rates?.out_bytes),
    used: sum((n) => n.disk?.used),
    free: sum((n) => n.disk?.free),
    led: sum((n) => n.partitions.led),
    versions: [...new Set(nodes.filter((n) => n.state !== "dead").map((n) => n.version))].sort(),
    silent: nodes.filter((n) => n.uptime === undefined).map((n) => n.name),
  };
}

export interface Trouble {
  grave: boolean;
  what: string;
  advice?: string;
  /** Where to look at its cause. */
  path: string[];
}

/** A feed as old as this means that this node does not hear the coordinators. */
const oldFeedMs = 3000;

/** Alerts of one name that are told one by one; a dead node makes one of each partition that it held. */
const mostAlike = 3;

/** Firing alerts as troubles, many of one name as one. */
function alarms(alerts: readonly Alert[]): Trouble[] {
  const byName = new Map<string, Alert[]>();
  for (const a of alerts) {
    if (a.state === "firing") byName.set(a.alert, [...(byName.get(a.alert) ?? []), a]);
  }
  return [...byName].flatMap(([name, alike]) => {
    const grave = name !== "replica-lag";
    if (alike.length <= mostAlike) {
      return alike.map((a) => ({ grave, what: `${name}: ${a.detail}`, advice: a.advice, path: causeOf(a) }));
    }
    const [first] = alike;
    const what = `${name}: ${several(alike.length, "alert")}, such as: ${first!.detail}`;
    return { grave, what, advice: first!.advice, path: ["cluster"] };
  });
}

/** Where to look at what an alert is about. */
function causeOf({ topic, group, node }: Alert): string[] {
  if (topic) return group ? ["groups", topic, group] : ["topics", topic, "partitions"];
  return [node ? "cluster" : "overview"];
}

/** What is wrong, the worst first: alerts, and what nodes show before an alert fires. */
export function troubles(info: Nodes | undefined, alerts: readonly Alert[]): Trouble[] {
  const list = alarms(alerts);
  const down = alerts.filter((a) => a.state === "firing" && a.alert === "node-down");
  const told = new Set(down.map((a) => a.node));
  for (const n of info?.nodes ?? []) {
    if (told.has(n.name) || told.has(n.id)) continue;
    if (n.state === "dead" || n.state === "suspect")
      list.push({ grave: true, what: `Node ${n.name} is ${n.state}.`, path: ["cluster"] });
    else if (n.uptime === undefined)
      list.push({ grave: true, what: `Node ${n.name} does not answer.`, path: ["cluster"] });
    else if (n.state === "draining") list.push({ grave: false, what: `Node ${n.name} is drained.`, path: ["cluster"] });
  }
  const age = milliseconds(info?.feed_age ?? "0s") ?? 0;
  if (age > oldFeedMs) {
    const seconds = count(age / 1000);
    list.push({
      grave: true,
      what: `This node has heard no coordinator for ${seconds} s: what is shown may be old.`,
      path: ["cluster"],
    });
  }
  if (info) {
    const { versions } = totals(info);
    if (versions.length > 1)
      list.push({
        grave: false,
        what: `The nodes run ${several(versions.length, "version")}: ${versions.join(", ")}.`,
        path: ["cluster"],
      });
  }
  return list.sort((a, b) => Number(b.grave) - Number(a.grave));
}

/** Partitions without a leader, and those with fewer replicas in sync than they should have. */
export function health(topics: readonly Topic[]): { partitions: number; leaderless: number; short: number } {
  const all = topics.flatMap((t) => t.layout.partitions.map((p) => ({ t, p })));
  return {
    partitions: all.length,
    leaderless: all.filter(({ p }) => !p.leader).length,
    short: all.filter(({ t, p }) => p.isr.length < t.replicas).length,
  };
}
