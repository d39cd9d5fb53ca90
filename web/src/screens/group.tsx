import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { ago, count, duration, short, unknown } from "../core/format.js";
import { sums } from "../core/groups.js";
import { href } from "../core/route.js";
import { type Columns, emptyColumns, push } from "../core/series.js";
import type { Group, GroupPartition, Member } from "../core/wire.js";
import { api, at, token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { keepS } from "../live/pulse.js";
import { go } from "../live/route.js";
import { Chart } from "../parts/chart.js";
import { Confirm } from "../parts/dialog.js";
import { type Column, Table } from "../parts/table.js";
import { Empty, Fact, Refusal, Waiting } from "../parts/words.js";
import { now } from "../shell/time.js";
import { Reset } from "./reset.js";

const everyMs = 1000;

/** One group: how far it is, by partition and over time. */
export function GroupDetail({ names: [topic = "", name = ""] }: { names: string[] }) {
  const past = useRef<Columns>(emptyColumns(2));
  const asked = useSignal<"" | "reset" | "delete">("");
  const removing = useSignal<Member | undefined>(undefined);
  const { polled, again } = usePolled(
    `${topic}/${name} ${token.value}`,
    async (signal) => {
      const group = await api<Group>(at("groups", topic, name), { signal });
      const { lag, inFlight } = sums(group);
      past.current = push(past.current, Date.now() / 1000, [lag, inFlight], keepS);
      return group;
    },
    everyMs,
  );
  const { value: group, error } = polled.value;
  return (
    <section aria-labelledby="group-title">
      <h2 id="group-title">
        <a href={href(["groups"])}>Groups</a> / {name} <small>of</small> <a href={href(["topics", topic])}>{topic}</a>
      </h2>
      <Refusal error={error} />
      {!group && !error && <Waiting what={name} />}
      {group && (
        <>
          <Facts group={group} />
          <div class="row">
            <button
              type="button"
              onClick={() => {
                asked.value = "reset";
              }}
            >
              Move to other offsets …
            </button>
            <button
              type="button"
              class="danger"
              onClick={() => {
                asked.value = "delete";
              }}
            >
              Forget the group …
            </button>
          </div>
          <div class="charts two">
            <Chart
              title="Records"
              whole
              lines={["lag", "in flight"]}
              columns={past.current}
              format={(n) => (n === null ? unknown : short(n))}
              keepS={keepS}
            />
          </div>
          <h3>Partitions</h3>
          <Table
            name={`Partitions of ${name}`}
            rows={group.partitions ?? []}
            id={(p) => String(p.partition)}
            columns={partitionColumns}
            sorted="Partition"
          />
          <h3>Members</h3>
          {group.members.length ? (
            <Table
              name={`Members of ${name}`}
              rows={group.members}
              id={(m) => m.member}
              columns={memberColumns((m) => {
                removing.value = m;
              })}
              sorted="Member"
            />
          ) : (
            <Empty
              title="No member"
              shell={`tidewire consume ${topic} --group ${name} --exec 'cat' --server ${location.origin}`}
            >
              <p>Nobody works for this group at the moment. A member joins by:</p>
            </Empty>
          )}
        </>
      )}
      {group && asked.value === "reset" && (
        <Reset
          group={group}
          close={() => {
            asked.value = "";
            again();
          }}
        />
      )}
      {asked.value === "delete" && (
        <Confirm
          title={`Forget ${name}?`}
          action="Forget"
          typed={name}
          run={async () => {
            await api(at("groups", topic, name), { method: "DELETE" });
            go(["groups"]);
          }}
          close={() => {
            asked.value = "";
          }}
        >
          <p>Its members, and how far it has come, are forgotten with it. The topic and its records stay.</p>
        </Confirm>
      )}
      {removing.value && (
        <Confirm
          title={`Remove ${removing.value.member}?`}
          action="Remove"
          run={async () => {
            await api(at("groups", topic, name, "nodes", removing.value!.member), { method: "DELETE" });
            again();
          }}
          close={() => {
            removing.value = undefined;
          }}
        >
          <p>What it has in hand goes to the others at once. A member that still runs joins again by itself.</p>
        </Confirm>
      )}
    </section>
  );
}

function Facts({ group }: { group: Group }) {
  const s = sums(group);
  return (
    <dl class="facts">
      <Fact name="Lag">{count(s.lag)}</Fact>
      <Fact name="In flight">{count(s.inFlight)}</Fact>
      <Fact name="Oldest not done">{ago(s.oldest, now.value)}</Fact>
      <Fact name="Members">{count(group.members.length)}</Fact>
      <Fact name="Redelivered">{count(s.redelivered)}</Fact>
      <Fact name="Dead">
        <a href={href(["topics", group.dead_letter, "messages"])}>{count(s.dead)}</a>
      </Fact>
      {(s.expired ?? 0) > 0 && (
        <Fact name="Expired unread" bad>
          {count(s.expired)}
        </Fact>
      )}
      <Fact name="Mode">{group.mode}</Fact>
      <Fact name="Lease, session">
        {duration(group.lease)} <small>{duration(group.session)}</small>
      </Fact>
      <Fact name="Deliveries at most">
        {group.max_deliveries} <small>backoff {group.backoff}</small>
      </Fact>
    </dl>
  );
}

const partitionColumns: Column<GroupPartition>[] = [
  { head: "Partition", cell: (p) => p.partition, sort: (p) => p.partition },
  { head: "Member", wrap: true, cell: (p) => p.member ?? unknown, sort: (p) => p.member ?? "" },
  { head: "Done up to", cell: (p) => count(p.committed), sort: (p) => p.committed, number: true },
  { head: "End", cell: (p) => count(p.end), sort: (p) => p.end, number: true },
  { head: "Lag", cell: (p) => count(p.lag), sort: (p) => p.lag, number: true },
  { head: "In flight", cell: (p) => count(p.in_flight), sort: (p) => p.in_flight, number: true },
  { head: "Oldest not done", cell: (p) => ago(p.oldest_unacked, now.value), number: true },
  { head: "Redelivered", cell: (p) => count(p.redelivered), sort: (p) => p.redelivered, number: true },
  { head: "Dead", cell: (p) => count(p.dead), sort: (p) => p.dead, number: true },
  {
    head: "State",
    cell: (p) =>
      p.lag === null ? (
        <span class="mark suspect">not known</span>
      ) : p.paused ? (
        <span class="mark dead">paused</span>
      ) : (
        <span class="mark alive">reads</span>
      ),
  },
];

const memberColumns = (remove: (m: Member) => void): Column<Member>[] => [
  { head: "Member", wrap: true, cell: (m) => m.member, sort: (m) => m.member },
  { head: "By node", cell: (m) => m.node, sort: (m) => m.node },
  { head: "Since", cell: (m) => ago(m.since, now.value), sort: (m) => m.since },
  { head: "Partitions", wrap: true, cell: (m) => m.partitions.join(", ") || "none", sort: (m) => m.partitions.length },
  {
    head: "Action",
    cell: (m) => (
      <button type="button" class="small" aria-label={`Remove ${m.member}`} onClick={() => remove(m)}>
        Remove
      </button>
    ),
  },
];
