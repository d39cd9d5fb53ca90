import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { count, rate, several, unknown } from "../core/format.js";
import { href } from "../core/route.js";
import { type Ends, ends, growth, kept, look, shares } from "../core/topics.js";
import type { Partition, Topic } from "../core/wire.js";
import { api, at, token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { groupsOf } from "../live/survey.js";
import { type Column, Table } from "../parts/table.js";
import { Fact, Refusal, Waiting } from "../parts/words.js";
import { GroupTable } from "./groups.js";
import { Messages } from "./messages.js";
import { Publish } from "./publish.js";
import { Settings } from "./settings.js";
import { retention } from "./topics.js";

const everyMs = 2000;
const tabs = ["messages", "publish", "partitions", "groups", "settings"] as const;

/** One topic: its figures, and a tab of the rest. */
export function TopicDetail({ names: [name = "", tab = "messages"] }: { names: string[] }) {
  const looks = useRef<Ends[]>([]);
  const rates = useSignal(new Map<number, number | null>());
  const { polled, again } = usePolled(
    `${name} ${token.value}`,
    async (signal) => {
      const topic = await api<Topic>(at("topics", name, "metadata"), { signal });
      looks.current = look(looks.current, ends([topic], performance.now()));
      rates.value = new Map(topic.layout.partitions.map((p) => [p.id, growth(topic, looks.current, [p])]));
      return topic;
    },
    everyMs,
  );
  const { value: topic, error } = polled.value;
  return (
    <section aria-labelledby="topic-title">
      <h2 id="topic-title">
        <a href={href(["topics"])}>Topics</a> / {name}
      </h2>
      <Refusal error={error} />
      {topic && <Facts topic={topic} rates={[...rates.value.values()]} />}
      <nav class="tabs" aria-label={`Of ${name}`}>
        {tabs.map((t) => (
          <a key={t} href={href(["topics", name, t])} aria-current={t === tab ? "page" : undefined}>
            {t[0]!.toUpperCase() + t.slice(1)}
          </a>
        ))}
      </nav>
      {!topic && !error && <Waiting what={name} />}
      {topic && tab === "messages" && <Messages topic={topic} />}
      {topic && tab === "publish" && <Publish topic={name} />}
      {topic && tab === "partitions" && (
        <Table
          name={`Partitions of ${name}`}
          rows={partitionRows(topic, rates.value)}
          id={(r) => String(r.p.id)}
          columns={columns}
          sorted="Partition"
        />
      )}
      {topic && tab === "groups" && <TopicGroups name={name} />}
      {topic && tab === "settings" && <Settings topic={topic} changed={again} />}
    </section>
  );
}

function Facts({ topic, rates }: { topic: Topic; rates: (number | null)[] }) {
  const known = topic.layout.partitions.map(kept);
  const leaderless = topic.layout.partitions.filter((p) => !p.leader).length;
  const short = topic.layout.partitions.filter((p) => p.isr.length < topic.replicas).length;
  const sum = rates.some((r) => r !== null) ? rates.reduce<number>((a, r) => a + (r ?? 0), 0) : null;
  return (
    <dl class="facts">
      <Fact name="Messages">
        {count(known.reduce<number>((a, n) => a + (n ?? 0), 0))}
        {known.includes(null) && "+"}
      </Fact>
      <Fact name="Published a second">{rate(sum)}</Fact>
      <Fact name="Partitions" bad={leaderless > 0}>
        {count(known.length)} {leaderless > 0 && <small>{leaderless} without a leader</small>}
      </Fact>
      <Fact name="Replicas" bad={short > 0}>
        {topic.replicas}{" "}
        <small>{short ? `${several(short, "partition")} short of them` : `${topic.min_insync} must be in sync`}</small>
      </Fact>
      <Fact name="Kept for">{retention(topic)}</Fact>
      <Fact name="Durability">{topic.durability}</Fact>
    </dl>
  );
}

interface PartitionRow {
  p: Partition;
  share: number;
  rate: number | null;
  topic: Topic;
}

function partitionRows(topic: Topic, rates: Map<number, number | null>): PartitionRow[] {
  const share = shares(topic);
  return topic.layout.partitions.map((p, i) => ({ p, share: share[i]!, rate: rates.get(p.id) ?? null, topic }));
}

const columns: Column<PartitionRow>[] = [
  {
    head: "Partition",
    cell: ({ p, topic }) => <a href={href(["topics", topic.name, "messages"], { partition: p.id })}>{p.id}</a>,
    sort: ({ p }) => p.id,
  },
  { head: "Leader", cell: ({ p }) => p.leader ?? <span class="mark dead">none</span>, sort: ({ p }) => p.leader ?? "" },
  { head: "Epoch", cell: ({ p }) => count(p.leader_epoch), sort: ({ p }) => p.leader_epoch, number: true },
  {
    head: "In sync",
    wrap: true,
    cell: ({ p, topic }) =>
      p.isr.length < topic.replicas ? <span class="mark suspect">{p.isr.join(", ") || "none"}</span> : p.isr.join(", "),
    sort: ({ p }) => p.isr.length,
  },
  { head: "Replicas", wrap: true, cell: ({ p }) => p.replicas.join(", ") },
  { head: "First offset", cell: ({ p }) => count(p.earliest), sort: ({ p }) => p.earliest, number: true },
  { head: "End", cell: ({ p }) => count(p.hw), sort: ({ p }) => p.hw, number: true },
  { head: "Messages", cell: ({ p }) => count(kept(p)), sort: ({ p }) => kept(p), number: true },
  {
    head: "Share",
    cell: ({ share }) => (
      <>
        <meter value={share} aria-hidden="true" /> {Math.round(share * 100)} %
      </>
    ),
    sort: ({ share }) => share,
    number: true,
  },
  { head: "A second", cell: ({ rate: r }) => rate(r), sort: ({ rate: r }) => r, number: true },
  { head: "State", cell: ({ p }) => p.state || unknown },
];

function TopicGroups({ name }: { name: string }) {
  const { value, error } = usePolled(`groups ${name} ${token.value}`, (signal) => groupsOf(name, signal), everyMs)
    .polled.value;
  return (
    <>
      <Refusal error={error} />
      {value ? <GroupTable groups={value} of={name} /> : !error && <Waiting what="the groups" />}
    </>
  );
}
