import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { count, duration, rate, several, unknown } from "../core/format.js";
import { href } from "../core/route.js";
import { type Ends, ends, growth, look, type TopicRow, topicRow } from "../core/topics.js";
import type { Topic } from "../core/wire.js";
import { api, token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { go, route, setQuery } from "../live/route.js";
import { listTopics, mostTopics, survey } from "../live/survey.js";
import { Field } from "../parts/field.js";
import { Spark } from "../parts/spark.js";
import { type Column, Table } from "../parts/table.js";
import { Empty, Refusal, Waiting } from "../parts/words.js";

const everyMs = 2000;
const groupsEveryMs = 5000;
/** Looks that a sparkline has. */
const sparkLooks = 60;

export function Topics() {
  const looks = useRef<Ends[]>([]);
  const past = useRef(new Map<string, (number | null)[]>());
  const rates = useSignal(new Map<string, number | null>());
  const topics = usePolled(
    `topics ${token.value}`,
    async (signal) => {
      const list = await listTopics(signal);
      looks.current = look(looks.current, ends(list, performance.now()));
      rates.value = new Map(list.map((t) => [t.id, growth(t, looks.current)]));
      for (const [id, r] of rates.value) {
        if (r !== null) past.current.set(id, [...(past.current.get(id) ?? []), r].slice(-sparkLooks));
      }
      return list;
    },
    everyMs,
  );
  const groups = usePolled(
    `groups ${token.value}`,
    async (signal) => survey(await listTopics(signal), signal),
    groupsEveryMs,
  ).polled.value;
  const { value: list, error } = topics.polled.value;
  const { q = "", own = "" } = route.value.query;
  const rows = (list ?? [])
    .filter((t) => t.name.includes(q) && (own || !t.name.startsWith("_")))
    .map((t) => topicRow(t, rates.value.get(t.id) ?? null, groups.value?.get(t.name)));
  return (
    <section aria-labelledby="topics-title">
      <h2 id="topics-title">Topics</h2>
      <Refusal error={error} />
      <form class="row" role="search" onSubmit={(e) => e.preventDefault()}>
        <Field label="Filter by name">
          {(id) => <input id={id} type="search" value={q} onInput={(e) => setQuery({ q: e.currentTarget.value })} />}
        </Field>
        <label class="check">
          <input
            type="checkbox"
            checked={own !== ""}
            onChange={(e) => setQuery({ own: e.currentTarget.checked ? 1 : "" })}
          />{" "}
          The cluster's own
        </label>
      </form>
      {list ? (
        rows.length > 0 ? (
          <Table name="Topics" rows={rows} id={(r) => r.topic.id} columns={columns(past.current)} sorted="Topic" />
        ) : (
          <Empty
            title={q ? `No topic has “${q}” in its name` : "No topic yet"}
            shell={q ? undefined : `tidewire topic create orders --partitions 4 --server ${location.origin}`}
          >
            {!q && <p>Make one below, or in a shell:</p>}
          </Empty>
        )
      ) : (
        !error && <Waiting what="the topics" />
      )}
      {rows.length > mostTopics && <p class="quiet">Groups and lag are asked for of the first {mostTopics} topics.</p>}
      <Create open={list?.length === 0} />
    </section>
  );
}

const columns = (past: Map<string, (number | null)[]>): Column<TopicRow>[] => [
  { head: "Topic", cell: (r) => <a href={href(["topics", r.name])}>{r.name}</a>, sort: (r) => r.name },
  { head: "Partitions", cell: (r) => count(r.partitions), sort: (r) => r.partitions, number: true },
  { head: "Messages", cell: (r) => count(r.records) + (r.partial ? "+" : ""), sort: (r) => r.records, number: true },
  {
    head: "A second",
    cell: (r) => (
      <>
        <Spark values={past.get(r.topic.id) ?? []} /> {rate(r.rate)}
      </>
    ),
    sort: (r) => r.rate,
    number: true,
  },
  {
    head: "Groups",
    cell: (r) => (r.groups === null ? unknown : <a href={href(["topics", r.name, "groups"])}>{count(r.groups)}</a>),
    sort: (r) => r.groups,
    number: true,
  },
  { head: "Max lag", cell: (r) => count(r.maxLag), sort: (r) => r.maxLag, number: true },
  { head: "Replicas", cell: (r) => count(r.topic.replicas), sort: (r) => r.topic.replicas, number: true },
  { head: "Kept for", cell: (r) => retention(r.topic) },
  { head: "State", wrap: true, cell: (r) => <Health row={r} />, sort: (r) => r.leaderless * 1000 + r.short },
];

export const retention = ({ retention: { age, bytes } }: Topic): string =>
  `${age === "0s" ? "ever" : duration(age)}${bytes ? `, ${count(bytes)} B a partition` : ""}`;

function Health({ row }: { row: TopicRow }) {
  if (row.leaderless) return <span class="mark dead">{several(row.leaderless, "partition")} without a leader</span>;
  if (row.short) return <span class="mark suspect">{several(row.short, "partition")} short of replicas</span>;
  return <span class="mark alive">well</span>;
}

function Create({ open }: { open: boolean }) {
  const error = useSignal<unknown>(undefined);
  const submit = async (event: Event) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const data = new FormData(form);
    const number = (name: string) => (data.get(name) ? Number(data.get(name)) : undefined);
    error.value = undefined;
    try {
      const name = String(data.get("name")).trim();
      await api("/topics/", {
        method: "POST",
        json: {
          name,
          partitions: number("partitions"),
          replicas: number("replicas"),
          retention: data.get("age") ? { age: data.get("age") } : undefined,
        },
      });
      form.reset();
      go(["topics", name, "messages"], { live: 1 });
    } catch (thrown) {
      error.value = thrown;
    }
  };
  return (
    <details class="card" open={open}>
      <summary>New topic</summary>
      <form class="row" id="create" onSubmit={submit} autocomplete="off">
        <Field label="Name">
          {(id) => (
            <input
              id={id}
              name="name"
              required
              maxLength={249}
              pattern="[A-Za-z0-9][A-Za-z0-9._\-]*"
              title="Letters, digits, dot, dash and underscore; begins with a letter or a digit"
              spellcheck={false}
              autocapitalize="none"
            />
          )}
        </Field>
        <Field label="Partitions">
          {(id) => <input id={id} name="partitions" type="number" min="1" max="256" value="4" required />}
        </Field>
        <Field label="Replicas" hint="3, or as many as there are brokers">
          {(id) => <input id={id} name="replicas" type="number" min="1" />}
        </Field>
        <Field label="Kept for" hint="168h">
          {(id) => <input id={id} name="age" placeholder="168h" spellcheck={false} />}
        </Field>
        <button type="submit" class="primary">
          Create
        </button>
        <Refusal error={error.value} />
      </form>
    </details>
  );
}
