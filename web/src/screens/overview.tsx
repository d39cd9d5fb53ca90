import { health, totals } from "../core/cluster.js";
import { bytes, count, latency, rate, short, unknown } from "../core/format.js";
import { href } from "../core/route.js";
import { latest } from "../core/series.js";
import { lagOf } from "../core/topics.js";
import { token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { connections, keepS, latencies, nodes, problems, rates } from "../live/pulse.js";
import { listTopics, mostTopics, survey } from "../live/survey.js";
import { Chart } from "../parts/chart.js";
import { Empty, Fact, Refusal, Waiting } from "../parts/words.js";

const topicsEveryMs = 2000;
const groupsEveryMs = 5000;

/** How the cluster is, problems first. */
export function Overview() {
  const topics = usePolled(`topics ${token.value}`, listTopics, topicsEveryMs).polled.value;
  const lag = usePolled(
    `lag ${token.value}`,
    async (signal) => [...(await survey(await listTopics(signal), signal)).values()].flat(),
    groupsEveryMs,
  ).polled.value;
  const { value: info, error } = nodes.value;
  return (
    <section aria-labelledby="overview-title">
      <h2 id="overview-title">Overview</h2>
      <Refusal error={error} />
      <Troubles />
      {info ? (
        <Figures info={totals(info)} topics={topics.value ?? []} groups={lag.value} />
      ) : (
        !error && <Waiting what="the nodes" />
      )}
      {topics.value?.length === 0 && (
        <Empty title="No topic yet" shell={`tidewire topic create orders --partitions 4 --server ${location.origin}`}>
          <p>
            A topic is where records are kept, in the order they came. Make the first one under{" "}
            <a href={href(["topics"])}>Topics</a>, or in a shell:
          </p>
        </Empty>
      )}
      <div class="charts">
        <Chart
          title="Messages a second"
          lines={["published", "delivered"]}
          columns={rates.value}
          format={(n) => (n === null ? unknown : short(n))}
          keepS={keepS}
        />
        <Chart
          title="Publish to deliver at this node"
          lines={["p50", "p99"]}
          columns={latencies.value}
          format={latency}
          keepS={keepS}
          empty="Nothing has been delivered by this node since this page was opened."
        />
        <Chart
          title="Connections"
          whole
          lines={connections.value.names}
          columns={connections.value.columns}
          format={(n) => (n === null ? unknown : short(n))}
          keepS={keepS}
        />
      </div>
    </section>
  );
}

function Troubles() {
  const list = problems.value;
  if (!list.length) return null;
  return (
    <div role="alert">
      <ul class="troubles" aria-label="Problems">
        {list.map((t) => (
          <li key={t.what} class={t.grave ? "bad" : "wait"}>
            <a href={href(t.path)}>{t.what}</a>
            {t.advice && <p>{t.advice}</p>}
          </li>
        ))}
      </ul>
    </div>
  );
}

interface FiguresProps {
  info: ReturnType<typeof totals>;
  topics: Parameters<typeof health>[0];
  groups: Parameters<typeof lagOf>[0][] | undefined;
}

function Figures({ info, topics, groups }: FiguresProps) {
  const { partitions, leaderless, short: behind } = health(topics);
  const lags = groups?.map(lagOf).filter((n) => n !== null);
  const lag = lags?.reduce((a, b) => a + b, 0);
  const apart = info.silent.length ? ` without ${info.silent.join(", ")}` : "";
  return (
    <dl class="facts">
      <Fact name="Nodes alive" bad={info.alive < info.nodes}>
        {info.alive} of {info.nodes}
      </Fact>
      <Fact name={`Published a second${apart}`}>
        {rate(info.inRecords)} <small>{bytes(info.inBytes)}</small>
      </Fact>
      <Fact name={`Delivered a second${apart}`}>
        {rate(info.outMessages)} <small>{bytes(info.outBytes)}</small>
      </Fact>
      <Fact name="Delivery p50, p99">
        {latency(latest(latencies.value, 1))} <small>{latency(latest(latencies.value, 2))}</small>
      </Fact>
      <Fact name={`Connections${apart}`}>{count(info.connections)}</Fact>
      <Fact name={topics.length > mostTopics ? `Lag of groups, of the first ${mostTopics} topics` : "Lag of groups"}>
        {count(lag)}
      </Fact>
      <Fact name="Topics">{count(topics.length)}</Fact>
      <Fact name="Partitions" bad={leaderless > 0}>
        {count(partitions)} <small>{leaderless ? `${leaderless} without a leader` : "all led"}</small>
      </Fact>
      <Fact name="Fewer in sync than replicas" bad={behind > 0}>
        {count(behind)}
      </Fact>
      <Fact name={`Disk${apart}`}>
        {bytes(info.used)} <small>{bytes(info.free)} free</small>
      </Fact>
      <Fact name="Version" bad={info.versions.length > 1}>
        {info.versions.join(", ")}
      </Fact>
    </dl>
  );
}
