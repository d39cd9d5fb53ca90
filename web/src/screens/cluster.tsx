import { useSignal } from "@preact/signals";
import { bytes, count, duration, rate, unknown } from "../core/format.js";
import { href } from "../core/route.js";
import type { Node, Topic } from "../core/wire.js";
import { api, at, token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { alerts, nodes } from "../live/pulse.js";
import { listTopics } from "../live/survey.js";
import { colour } from "../parts/chart.js";
import { Confirm } from "../parts/dialog.js";
import { type Column, Table } from "../parts/table.js";
import { Refusal, Waiting } from "../parts/words.js";
import { shown } from "../shell/time.js";

const everyMs = 2000;
/** Alerts that are listed. */
const mostAlerts = 200;
/** Topics of the map of partitions. */
const mapTopics = 50;

export function Cluster() {
  const asked = useSignal<Node | undefined>(undefined);
  const topics = usePolled(`map ${token.value}`, listTopics, everyMs).polled.value;
  const { value: info, error } = nodes.value;
  return (
    <section aria-labelledby="cluster-title">
      <h2 id="cluster-title">Cluster</h2>
      <Refusal error={error} />
      {info ? (
        <Table
          name="Nodes"
          rows={info.nodes}
          id={(n) => n.id}
          sorted="Node"
          columns={columns((n) => {
            asked.value = n;
          })}
        />
      ) : (
        !error && <Waiting what="the nodes" />
      )}
      {info && (
        <p class="quiet">
          The coordinators are led by {info.coordinator_leader || "nobody"}. This node heard them {info.feed_age} ago.
        </p>
      )}
      {info?.nodes.some((n) => n.moves.length > 0) && <Moves nodes={info.nodes} />}
      <Refusal error={topics.error} />
      {topics.value && topics.value.length > 0 && <Leaders topics={topics.value} nodes={info?.nodes ?? []} />}
      <Alerts />
      {asked.value && (
        <Drain
          node={asked.value}
          close={() => {
            asked.value = undefined;
          }}
        />
      )}
    </section>
  );
}

const columns = (ask: (n: Node) => void): Column<Node>[] => [
  { head: "Node", cell: (n) => <b>{n.name}</b>, sort: (n) => n.name },
  {
    head: "State",
    cell: (n) => (
      <span class={`mark ${n.state}`}>{n.uptime === undefined && n.state === "alive" ? "no answer" : n.state}</span>
    ),
    sort: (n) => n.state,
  },
  {
    head: "Roles",
    wrap: true,
    cell: (n) => n.roles.join(", ") + (n.coordinator_leader ? " (leads the coordinators)" : ""),
  },
  { head: "Zone", cell: (n) => n.zone || unknown, sort: (n) => n.zone || "" },
  { head: "Version", cell: (n) => n.version, sort: (n) => n.version },
  { head: "Up", cell: (n) => (n.uptime ? duration(n.uptime) : unknown) },
  { head: "Leads", cell: (n) => count(n.partitions.led), sort: (n) => n.partitions.led, number: true },
  { head: "Follows", cell: (n) => count(n.partitions.followed), sort: (n) => n.partitions.followed, number: true },
  { head: "Connections", cell: (n) => count(n.connections), sort: (n) => n.connections ?? null, number: true },
  {
    head: "In a second",
    cell: (n) => rate(n.rates?.in_records),
    sort: (n) => n.rates?.in_records ?? null,
    number: true,
  },
  {
    head: "Out a second",
    cell: (n) => rate(n.rates?.out_messages),
    sort: (n) => n.rates?.out_messages ?? null,
    number: true,
  },
  { head: "Disk used", cell: (n) => bytes(n.disk?.used), sort: (n) => n.disk?.used ?? null, number: true },
  { head: "Disk free", cell: (n) => bytes(n.disk?.free), sort: (n) => n.disk?.free ?? null, number: true },
  { head: "Address", cell: (n) => n.addresses.http ?? unknown },
  {
    head: "Action",
    cell: (n) => (
      <button
        type="button"
        class="small"
        disabled={n.state === "dead"}
        onClick={() => ask(n)}
        aria-label={`${n.state === "draining" ? "Take back" : "Drain"} ${n.name}`}
      >
        {n.state === "draining" ? "Take back" : "Drain"}
      </button>
    ),
  },
];

function Drain({ node, close }: { node: Node; close(): void }) {
  const cancel = node.state === "draining";
  return (
    <Confirm
      title={cancel ? `Take ${node.name} back?` : `Drain ${node.name}?`}
      action={cancel ? "Take back" : "Drain"}
      run={() => api(at("nodes", node.id, "drain"), { method: "POST", json: { cancel } })}
      close={close}
    >
      <p>
        {cancel
          ? "It may lead partitions again, and is ready for clients."
          : "It hands the leadership of its partitions over and sends its clients away. It stays drained until it is started again or taken back."}
      </p>
    </Confirm>
  );
}

function Moves({ nodes: all }: { nodes: readonly Node[] }) {
  const moves = all.flatMap((n) => n.moves.map((m) => ({ ...m, node: n.name })));
  return (
    <>
      <h3>Partitions that move</h3>
      <ul class="plain">
        {moves.map((m) => (
          <li key={`${m.node} ${m.topic} ${m.partition} ${m.direction}`}>
            <a href={href(["topics", m.topic, "partitions"])}>
              {m.topic} {m.partition}
            </a>{" "}
            {m.direction === "in" ? "to" : "from"} {m.node}
          </li>
        ))}
      </ul>
    </>
  );
}

/** Which node leads what: a cell a partition, with its leader's place in the list of nodes. */
function Leaders({ topics, nodes: all }: { topics: readonly Topic[]; nodes: readonly Node[] }) {
  const names = all.map((n) => n.name).sort();
  const list = topics.slice(0, mapTopics);
  return (
    <>
      <h3>Partitions and their leaders</h3>
      <p class="key">
        {names.map((name, i) => (
          <span key={name} class="line">
            <i class={colour(i)} />
            {name}
          </span>
        ))}
        <span class="line">! fewer replicas in sync than there should be</span>
      </p>
      <div class="map">
        {list.map((t) => (
          <div key={t.id} class="maprow">
            <a href={href(["topics", t.name, "partitions"])}>{t.name}</a>
            <div class="cells" role="list" aria-label={`Partitions of ${t.name}`}>
              {t.layout.partitions.map((p) => {
                const i = names.indexOf(p.leader ?? "");
                const short = p.isr.length < t.replicas;
                const words = `partition ${p.id}: ${p.leader ? `led by ${p.leader}` : "no leader"}, in sync ${p.isr.join(", ") || "none"}`;
                return (
                  <span
                    key={p.id}
                    role="listitem"
                    class={`cell ${i >= 0 ? colour(i) : "none"}`}
                    title={words}
                    aria-label={words}
                  >
                    {p.id}
                    {short ? "!" : ""}
                  </span>
                );
              })}
            </div>
          </div>
        ))}
      </div>
      {topics.length > list.length && (
        <p class="quiet">
          These are {list.length} of {topics.length} topics; each one's own page has its partitions.
        </p>
      )}
    </>
  );
}

function Alerts() {
  const { value, error } = alerts.value;
  const past = value?.filter((a) => a.state === "resolved") ?? [];
  const firing = value?.filter((a) => a.state === "firing") ?? [];
  return (
    <>
      <h3>Alerts, firing and of the last hour</h3>
      <Refusal error={error} />
      {value?.length === 0 && <p class="quiet">None: nothing has fired in the last hour.</p>}
      {value && value.length > mostAlerts && (
        <p class="quiet">
          These are the first {mostAlerts} of {value.length}.
        </p>
      )}
      <ul class="plain">
        {[...firing, ...past].slice(0, mostAlerts).map((a) => (
          <li key={`${a.alert} ${a.since} ${a.node} ${a.topic} ${a.partition} ${a.group}`}>
            <span class={a.state === "firing" ? "mark dead" : "mark"}>{a.state}</span> <b>{a.alert}</b> {a.detail}{" "}
            <small>
              since <time>{shown(a.since)}</time>
              {a.until && (
                <>
                  , until <time>{shown(a.until)}</time>
                </>
              )}
            </small>
          </li>
        ))}
      </ul>
    </>
  );
}
