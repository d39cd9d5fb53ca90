import { useSignal } from "@preact/signals";
import { count } from "../core/format.js";
import { deadLetters, type DeadLetters as Row } from "../core/groups.js";
import { cutAll } from "../core/purge.js";
import { href } from "../core/route.js";
import { token } from "../live/api.js";
import { usePolled } from "../live/poll.js";
import { listTopics, survey } from "../live/survey.js";
import { type Column, Table } from "../parts/table.js";
import { Empty, Refusal, Waiting } from "../parts/words.js";
import { ask, type Discard, DiscardLetters } from "./purge.js";

const everyMs = 3000;

/** The topics that take what groups gave up; each is a topic as any other, and is read as one. */
export function DeadLetters() {
  const discarding = useSignal<Discard | undefined>(undefined);
  const refused = useSignal<unknown>(undefined);
  const { polled, again } = usePolled(
    `dead ${token.value}`,
    async (signal) => {
      const topics = await listTopics(signal);
      return deadLetters([...(await survey(topics, signal)).values()].flat(), topics);
    },
    everyMs,
  );
  const { value, error } = polled.value;
  const discards: Column<Row> = {
    head: "",
    cell: (r) =>
      r.there && (
        <button
          type="button"
          class="small"
          aria-label={`Discard all of ${r.topic}`}
          onClick={() => void ask(discarding, refused, r.topic, cutAll)}
        >
          Discard all …
        </button>
      ),
  };
  const rows = value?.filter((r) => r.there || r.from.some((f) => (f.dead ?? 0) > 0)) ?? [];
  return (
    <section aria-labelledby="dead-title">
      <h2 id="dead-title">Dead letters</h2>
      <Refusal error={error ?? refused.value} />
      {!value && !error && <Waiting what="the dead letters" />}
      {value &&
        (rows.length ? (
          <Table
            name="Dead-letter topics"
            rows={rows}
            id={(r) => r.topic}
            columns={[...columns, discards]}
            sorted="-Records"
          />
        ) : (
          <Empty title="No dead letters">
            <p>
              A record that a group gives up, by a reject or after so many deliveries, is kept in the group's
              dead-letter topic, with the reason. None has been. What a group may try is set when it is registered:{" "}
              <code>max_deliveries</code>, <code>dead_letter</code>.
            </p>
          </Empty>
        ))}
      {discarding.value && (
        <DiscardLetters
          discard={discarding.value}
          all
          done={again}
          close={() => {
            discarding.value = undefined;
          }}
        />
      )}
    </section>
  );
}

const columns: Column<Row>[] = [
  {
    head: "Topic",
    cell: (r) => (r.there ? <a href={href(["topics", r.topic, "messages"])}>{r.topic}</a> : r.topic),
    sort: (r) => r.topic,
  },
  { head: "Records", cell: (r) => count(r.records), sort: (r) => r.records, number: true },
  {
    head: "Of the groups",
    wrap: true,
    cell: (r) =>
      r.from.map((f, i) => (
        <span key={`${f.topic}/${f.group}`}>
          {i > 0 && ", "}
          <a href={href(["groups", f.topic, f.group])}>
            {f.topic} / {f.group}
          </a>
        </span>
      )),
  },
  {
    head: "Dead",
    cell: (r) => count(r.from.reduce((sum, f) => sum + (f.dead ?? 0), 0)),
    sort: (r) => r.from.reduce((sum, f) => sum + (f.dead ?? 0), 0),
    number: true,
  },
];
