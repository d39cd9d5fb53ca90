import { useComputed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { count, several } from "../core/format.js";
import { keyQuery, matches, newestFirst } from "../core/messages.js";
import type { Message, Topic } from "../core/wire.js";
import { backwards, forwards, type Reader } from "../live/read.js";
import { route, setQuery } from "../live/route.js";
import { Field } from "../parts/field.js";
import { Empty, Refusal } from "../parts/words.js";
import { Live } from "./live.js";
import { MessageList } from "./messagelist.js";

const defaultLimit = 50;
/** Records that one search looks at before it asks whether to go on. */
const searchRecords = 20_000;

type Query = Record<string, string>;

function readerOf(topic: Topic, q: Query): Reader {
  const partition = q.partition ? Number(q.partition) : undefined;
  const filter = keyQuery(q.key ?? "");
  switch (q.from) {
    case "earliest":
      return forwards(
        topic.name,
        partition === undefined ? { from: "earliest" } : { partition, offset: "earliest" },
        filter,
      );
    case "time": {
      const time = new Date(q.time ?? "").toISOString();
      return forwards(topic.name, partition === undefined ? { from: time } : { partition, at: time }, filter);
    }
    case "offset":
      return forwards(topic.name, { partition: partition ?? 0, offset: q.offset ?? "0" }, filter);
    case "cursor":
      return forwards(topic.name, { cursor: q.cursor }, filter);
    default:
      return backwards(topic.name, partition, filter);
  }
}

/** Looks at what is kept, or follows what comes. */
export function Messages({ topic }: { topic: Topic }) {
  const { query } = route.value;
  return (
    <>
      <Controls topic={topic} query={query} />
      {query.live ? (
        <Live key={`${topic.id} ${query.key} ${query.partition}`} topic={topic} query={query} />
      ) : (
        <Kept topic={topic} query={query} />
      )}
    </>
  );
}

function Controls({ topic, query }: { topic: Topic; query: Query }) {
  const from = useSignal(query.from ?? "newest");
  useEffect(() => {
    from.value = query.from ?? "newest";
  }, [query.from]);
  const submit = (event: Event) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const get = (name: string) => String(data.get(name) ?? "");
    setQuery({
      from: from.value === "newest" ? "" : from.value,
      offset: get("offset"),
      time: get("time"),
      cursor: get("cursor"),
      partition: get("partition"),
      key: get("key"),
      header: get("header"),
      text: get("text"),
      limit: get("limit") === String(defaultLimit) ? "" : get("limit"),
      run: Number(query.run ?? 0) + 1,
    });
  };
  return (
    <form class="row card" id="browse" role="search" autocomplete="off" onSubmit={submit} key={topic.id}>
      {!query.live && (
        <Field label="From">
          {(id) => (
            <select
              id={id}
              value={from.value}
              onChange={(e) => {
                from.value = e.currentTarget.value;
              }}
            >
              <option value="newest">the newest</option>
              <option value="earliest">the oldest</option>
              <option value="time">a time</option>
              <option value="offset">an offset</option>
              <option value="cursor">a cursor</option>
            </select>
          )}
        </Field>
      )}
      {!query.live && from.value === "offset" && (
        <Field label="Offset">
          {(id) => <input id={id} name="offset" type="number" min="0" required defaultValue={query.offset ?? "0"} />}
        </Field>
      )}
      {!query.live && from.value === "time" && (
        <Field label="Time" hint="local">
          {(id) => <input id={id} name="time" type="datetime-local" step="1" required defaultValue={query.time} />}
        </Field>
      )}
      {!query.live && from.value === "cursor" && (
        <Field label="Cursor">{(id) => <input id={id} name="cursor" required defaultValue={query.cursor} />}</Field>
      )}
      <Field label="Partition">
        {(id) => (
          <select id={id} name="partition">
            {(query.live || from.value !== "offset") && <option value="">all</option>}
            {topic.layout.partitions.map((p) => (
              <option key={p.id} value={p.id} selected={String(p.id) === query.partition}>
                {p.id}
              </option>
            ))}
          </select>
        )}
      </Field>
      <Field label="Key" hint="or prefix*">
        {(id) => (
          <input
            id={id}
            name="key"
            type="search"
            maxLength={1024}
            spellcheck={false}
            autocapitalize="none"
            defaultValue={query.key}
          />
        )}
      </Field>
      <Field label="Header" hint="name=part">
        {(id) => <input id={id} name="header" spellcheck={false} autocapitalize="none" defaultValue={query.header} />}
      </Field>
      <Field label="Value has" hint="or path=value">
        {(id) => <input id={id} name="text" spellcheck={false} autocapitalize="none" defaultValue={query.text} />}
      </Field>
      {!query.live && (
        <Field label="Messages">
          {(id) => (
            <input
              id={id}
              name="limit"
              type="number"
              min="1"
              max="5000"
              defaultValue={query.limit ?? String(defaultLimit)}
            />
          )}
        </Field>
      )}
      <button type="submit" class="primary">
        {query.live ? "Filter" : "Read"}
      </button>
      <button type="button" aria-pressed={Boolean(query.live)} onClick={() => setQuery({ live: query.live ? "" : 1 })}>
        Live
      </button>
    </form>
  );
}

/** What a search through the log has found so far. */
function useSearch(topic: Topic, query: Query) {
  const found = useSignal<Message[]>([]);
  const wanted = useSignal(0);
  const looked = useSignal(0);
  const busy = useSignal(false);
  const done = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const life = useRef(new AbortController());
  const reader = useRef<Reader>(undefined);
  const latest = useRef(topic);
  latest.current = topic;
  const limit = Number(query.limit ?? defaultLimit);
  const filter = { key: query.key ?? "", header: query.header ?? "", text: query.text ?? "" };
  const narrow = filter.header !== "" || filter.text !== "";

  async function more(): Promise<void> {
    const { signal } = life.current;
    busy.value = true;
    error.value = undefined;
    wanted.value = Math.min(wanted.value, found.value.length) + limit;
    const most = looked.value + searchRecords;
    try {
      while (!signal.aborted && !done.value && found.value.length < wanted.value && looked.value < most) {
        const piece = await reader.current!.next(
          narrow || filter.key ? 500 : wanted.value - found.value.length,
          signal,
        );
        found.value = [...found.value, ...piece.messages.filter((m) => matches(m, filter))];
        looked.value += piece.looked ?? piece.messages.length;
        done.value = piece.done;
      }
    } catch (thrown) {
      if (!signal.aborted) error.value = thrown;
    } finally {
      if (!signal.aborted) busy.value = false;
    }
  }

  const key = JSON.stringify([topic.id, query]);
  useEffect(() => {
    life.current = new AbortController();
    found.value = [];
    wanted.value = 0;
    looked.value = 0;
    done.value = false;
    try {
      reader.current = readerOf(latest.current, query);
      void more();
    } catch (thrown) {
      error.value = thrown instanceof RangeError ? new Error("Give a date and a time.") : thrown;
    }
    return () => life.current.abort();
  }, [key]);
  const stop = () => {
    life.current.abort();
    life.current = new AbortController();
    busy.value = false;
  };
  return { found, wanted, looked, busy, done, error, more, stop, narrow };
}

function Kept({ topic, query }: { topic: Topic; query: Query }) {
  const search = useSearch(topic, query);
  const { found, wanted, looked, busy, done, error } = search;
  const back = (query.from ?? "newest") === "newest";
  // A piece may have brought more than was wanted: the rest is there for when more is.
  const list = useComputed(() => (back ? [...found.value].sort(newestFirst) : found.value).slice(0, wanted.value));
  const all = done.value && found.value.length <= wanted.value;
  const announced = useSignal("");
  useSignalEffect(() => {
    if (!busy.value)
      announced.value = `${several(list.value.length, "message")}${done.value && list.value.length === found.value.length ? ", all there are" : ""}.`;
  });
  return (
    <>
      <p class="note" role="status">
        {busy.value
          ? `Reading … ${count(found.value.length)} found, ${count(looked.value)} looked at`
          : announced.value}
      </p>
      <Refusal error={error.value} />
      {done.value && !found.value.length && (
        <Empty
          title={query.key || search.narrow ? "No message fits" : "No message yet"}
          shell={`echo '{"total":12}' | tidewire publish ${topic.name} --key alice --server ${location.origin}`}
        >
          <p>Publish one under Publish above, or in a shell:</p>
        </Empty>
      )}
      <MessageList
        topic={topic}
        messages={list.value}
        discarded={() => setQuery({ run: Number(query.run ?? 0) + 1 })}
      />
      <div class="row">
        {busy.value ? (
          <button type="button" onClick={search.stop}>
            Stop
          </button>
        ) : (
          !all &&
          !error.value && (
            <button type="button" onClick={() => void search.more()}>
              {back ? "Older ones" : "Go on"}
            </button>
          )
        )}
      </div>
    </>
  );
}
