import { useSignal } from "@preact/signals";
import { ago, count, several } from "../core/format.js";
import { sums } from "../core/groups.js";
import { href } from "../core/route.js";
import type { Group } from "../core/wire.js";
import { api, at, token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { go, route, setQuery } from "../live/route.js";
import { listTopics, mostTopics, survey } from "../live/survey.js";
import { Field } from "../parts/field.js";
import { type Column, Table } from "../parts/table.js";
import { Empty, Refusal, Waiting } from "../parts/words.js";
import { now } from "../shell/time.js";

const everyMs = 3000;

/** All groups of all topics, the one furthest behind first. */
export function Groups() {
  const { value, error } = usePolled(
    `groups ${token.value}`,
    async (signal) => {
      const topics = await listTopics(signal);
      return { topics: topics.length, groups: [...(await survey(topics, signal)).values()].flat() };
    },
    everyMs,
  ).polled.value;
  const { q = "" } = route.value.query;
  const groups = (value?.groups ?? []).filter((g) => g.group.includes(q) || g.topic.includes(q));
  return (
    <section aria-labelledby="groups-title">
      <h2 id="groups-title">Groups</h2>
      <Refusal error={error} />
      <form class="row" role="search" onSubmit={(e) => e.preventDefault()}>
        <Field label="Filter by group or topic">
          {(id) => <input id={id} type="search" value={q} onInput={(e) => setQuery({ q: e.currentTarget.value })} />}
        </Field>
      </form>
      {value ? <GroupTable groups={groups} /> : !error && <Waiting what="the groups" />}
      {value && value.topics > mostTopics && (
        <p class="quiet">
          These are the groups of the first {mostTopics} topics; each topic's own page has its groups.
        </p>
      )}
    </section>
  );
}

const columns: Column<Group>[] = [
  { head: "Group", cell: (g) => <a href={href(["groups", g.topic, g.group])}>{g.group}</a>, sort: (g) => g.group },
  { head: "Topic", wrap: true, cell: (g) => <a href={href(["topics", g.topic])}>{g.topic}</a>, sort: (g) => g.topic },
  { head: "Mode", cell: (g) => g.mode, sort: (g) => g.mode },
  { head: "Members", cell: (g) => count(g.members.length), sort: (g) => g.members.length, number: true },
  { head: "Lag", cell: (g) => count(sums(g).lag), sort: (g) => sums(g).lag, number: true },
  { head: "In flight", cell: (g) => count(sums(g).inFlight), sort: (g) => sums(g).inFlight, number: true },
  {
    head: "Oldest not done",
    cell: (g) => ago(sums(g).oldest, now.value),
    sort: (g) => (sums(g).oldest ? -Date.parse(sums(g).oldest!) : null),
    number: true,
  },
  { head: "Redelivered", cell: (g) => count(sums(g).redelivered), sort: (g) => sums(g).redelivered, number: true },
  { head: "Dead", cell: (g) => count(sums(g).dead), sort: (g) => sums(g).dead, number: true },
  { head: "State", cell: (g) => <State group={g} /> },
];

function State({ group }: { group: Group }) {
  const { paused, unknown } = sums(group);
  if (paused) return <span class="mark dead">{several(paused, "partition")} paused</span>;
  if (unknown) return <span class="mark suspect">{several(unknown, "partition")} not known</span>;
  return (
    <span class={group.members.length ? "mark alive" : "mark"}>{group.members.length ? "works" : "no members"}</span>
  );
}

/** Groups, of one topic or of all, and how one is made. */
export function GroupTable({ groups, of }: { groups: readonly Group[]; of?: string }) {
  const list = of === undefined ? columns : columns.filter((c) => c.head !== "Topic");
  return (
    <>
      {groups.length > 0 ? (
        <Table name="Groups" rows={groups} id={(g) => `${g.topic}/${g.group}`} columns={list} sorted="-Lag" />
      ) : (
        <Empty
          title="No group"
          shell={`tidewire consume ${of ?? "orders"} --group billing --exec 'cat' --server ${location.origin}`}
        >
          <p>
            A group shares the records of a topic among its members: each is done by one of them. The first member makes
            it:
          </p>
        </Empty>
      )}
      {of !== undefined && <Register topic={of} />}
    </>
  );
}

function Register({ topic }: { topic: string }) {
  const error = useSignal<unknown>(undefined);
  const submit = async (event: Event) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const get = (name: string) => String(data.get(name)).trim();
    error.value = undefined;
    try {
      await api(at("groups", topic, "register"), {
        method: "POST",
        json: { group: get("group"), mode: get("mode"), from: get("from") },
      });
      go(["groups", topic, get("group")]);
    } catch (thrown) {
      error.value = thrown;
    }
  };
  return (
    <details class="card">
      <summary>New group</summary>
      <form class="row" onSubmit={submit} autocomplete="off">
        <Field label="Group">
          {(id) => <input id={id} name="group" required maxLength={249} spellcheck={false} autocapitalize="none" />}
        </Field>
        <Field label="Mode">
          {(id) => (
            <select id={id} name="mode">
              <option value="exclusive">exclusive: a partition has one member</option>
              <option value="shared">shared: any member, any partition</option>
            </select>
          )}
        </Field>
        <Field label="Begins at">
          {(id) => (
            <select id={id} name="from">
              <option value="earliest">the oldest record</option>
              <option value="latest">what comes from now on</option>
            </select>
          )}
        </Field>
        <button type="submit" class="primary">
          Register
        </button>
        <Refusal error={error.value} />
      </form>
    </details>
  );
}
