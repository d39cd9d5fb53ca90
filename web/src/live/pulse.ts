// What the whole page shows of the cluster, asked all the time wherever the page is, so
// that the charts have a past when one comes back to them.

import { batch, computed, signal } from "@preact/signals";
import { totals, troubles } from "../core/cluster.js";
import { type Histogram, histogram, quantile, samples, since } from "../core/metrics.js";
import { type Columns, emptyColumns, push } from "../core/series.js";
import type { Alert, Nodes } from "../core/wire.js";
import { api, text, token } from "./api.js";
import { type Polled, poll } from "./poll.js";

const everyMs = 1000;
/** Of a second there are too few messages to say how long one in a hundred took. */
const metricsEveryMs = 5000;
const timeoutMs = 2500;
export const keepS = 15 * 60;

const none = { value: undefined, error: undefined, atMs: 0 };
export const nodes = signal<Polled<Nodes>>(none);
export const alerts = signal<Polled<Alert[]>>(none);

/** Records published and messages delivered a second. */
export const rates = signal<Columns>(emptyColumns(2));
/** Publish to deliver at this node, in seconds: half of the messages, and 99 of 100, came within. */
export const latencies = signal<Columns>(emptyColumns(2));
/** Connections of each node, by the order of their names. */
export const connections = signal<{ names: string[]; columns: Columns }>({ names: [], columns: emptyColumns(0) });

export const problems = computed(() => troubles(nodes.value.value, alerts.value.value ?? []));

let before: Histogram | undefined;

function took(info: Nodes): void {
  const now = Date.now() / 1000;
  const sum = totals(info);
  rates.value = push(rates.value, now, [sum.inRecords, sum.outMessages], keepS);
  const names = info.nodes.map((n) => n.name).sort();
  const old = connections.value;
  const columns = names.join() === old.names.join() ? old.columns : emptyColumns(names.length);
  const values = names.map((name) => info.nodes.find((n) => n.name === name)?.connections ?? null);
  connections.value = { names, columns: push(columns, now, values, keepS) };
}

function tookMetrics(body: string): void {
  const now = histogram(samples(body, "gateway_deliver_latency_seconds_bucket"));
  const added = before && since(before, now);
  before = now;
  const values = added ? [quantile(added, 0.5), quantile(added, 0.99)] : [null, null];
  latencies.value = push(latencies.value, Date.now() / 1000, values, keepS);
}

/** Begins to ask; again with each change of the token. */
export function start(): void {
  let life = new AbortController();
  token.subscribe(() => {
    life.abort();
    life = new AbortController();
    const { signal } = life;
    const options = { signal, timeoutMs };
    batch(() => {
      nodes.value = none;
      alerts.value = none;
    });
    void poll(
      () => api<Nodes>("/nodes/", options),
      everyMs,
      (part) => {
        batch(() => {
          nodes.value = { ...nodes.value, ...part };
          if (part.value) took(part.value);
        });
      },
      signal,
    );
    void poll(
      async () => (await api<{ alerts: Alert[] }>("/alerts", options)).alerts,
      everyMs,
      (part) => {
        alerts.value = { ...alerts.value, ...part };
      },
      signal,
    );
    void poll(
      () => text("/metrics", { ...options, headers: { Accept: "text/plain" } }),
      metricsEveryMs,
      ({ value }) => {
        if (value !== undefined) tookMetrics(value);
      },
      signal,
    );
  });
}
