import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Client, createClient, history, poll, type Subscription, sse } from "tidewire";
import { latency } from "../core/format.js";
import { add, bounds, none, at as quantileAt } from "../core/roundtrips.js";
import { api, at, text, token } from "../live/api.js";
import { Field } from "../parts/field.js";
import { Refusal } from "../parts/words.js";

type Way = "websocket" | "sse" | "poll";

interface Line {
  id: number;
  sign: "out" | "in" | "note";
  text: string;
}

const mostLines = 300;
const mostLength = 2000;

/** Tries the protocol: connects as one likes, and shows what goes over the wire. */
export function Playground() {
  const lines = useSignal<Line[]>([]);
  const state = useSignal("idle");
  const error = useSignal<unknown>(undefined);
  const trips = useSignal(none);
  const way = useSignal<Way>("websocket");
  const topic = useSignal("");
  const topics = useSignal<string[]>([]);
  const tide = useRef<Client>(undefined);
  const sub = useRef<Subscription>(undefined);
  const next = useRef(0);

  const note = (sign: Line["sign"], words: string) => {
    const shown = words.length > mostLength ? `${words.slice(0, mostLength)}…` : words;
    lines.value = [{ id: next.current++, sign, text: shown }, ...lines.peek()].slice(0, mostLines);
  };
  useEffect(() => {
    api<{ topics: { name: string }[] }>("/topics/").then(
      (answer) => {
        topics.value = answer.topics.map((t) => t.name);
        topic.value ||= topics.value.find((t) => !t.startsWith("_")) ?? "";
      },
      () => {}, // a topic can be typed
    );
    return () => void tide.current?.close();
  }, []);

  const attempt = async (what: () => unknown) => {
    error.value = undefined;
    try {
      await what();
    } catch (thrown) {
      error.value = thrown;
    }
  };
  const disconnect = async () => {
    await tide.current?.close();
    tide.current = undefined;
    sub.current = undefined;
  };
  const connect = (auth: string) =>
    attempt(async () => {
      await disconnect();
      const made = createClient<Record<string, unknown>, "history" | "transport">({
        url: location.origin,
        auth: auth || undefined,
        reconnect: { maxAttempts: 5 },
        use: way.value === "poll" ? [poll(), history()] : [sse(), history()],
        WebSocket: way.value === "websocket" ? spied(note) : (null as never), // without one the SDK takes the way it is given
      });
      tide.current = made;
      made.on("state", (e) => {
        state.value = e.state;
        note(
          "note",
          `${e.previous} → ${e.state}${e.reason ? `: ${e.reason}` : ""}${e.retryInMs ? `, again in ${Math.round(e.retryInMs)} ms` : ""}`,
        );
      });
      made.on("error", (e) => note("note", e.message));
      await made.connect();
    });
  const subscribe = (from: string, key: string) =>
    attempt(async () => {
      await sub.current?.unsubscribe();
      const made = tide.current!.subscribe(
        topic.value,
        (m) => {
          if (way.value !== "websocket") note("in", JSON.stringify(m)); // of a WebSocket the frame is shown
        },
        { from: from === "earliest" ? "earliest" : "latest", key: key || undefined },
      );
      made.on("gap", (g) => note("note", `gap: ${JSON.stringify(g)}`));
      made.on("error", (e) => note("note", e.message));
      sub.current = made;
      await made.ready();
    });
  const publish = (key: string, value: string) =>
    attempt(async () => {
      const began = performance.now();
      const kept = await tide.current!.publish(topic.value, value === "" ? null : (JSON.parse(value) as unknown), {
        key: key || undefined,
        timeoutMs: 15_000,
      });
      const ms = performance.now() - began;
      trips.value = add(trips.value, ms);
      note("note", `kept in partition ${kept.partition} at offset ${kept.offset}, after ${ms.toFixed(1)} ms`);
    });
  const request = (key: string, value: string) =>
    attempt(async () => {
      const began = performance.now();
      note("out", `POST ${at("requests", topic.value)} ${value}`);
      const reply = await text(at("requests", topic.value), {
        method: "POST",
        query: { key: key || undefined, timeout: "5s" },
        type: "application/json",
        body: value,
      });
      note("in", `reply after ${(performance.now() - began).toFixed(1)} ms: ${reply}`);
    });

  const connected = state.value === "connected";
  return (
    <section aria-labelledby="playground-title">
      <h2 id="playground-title">Playground</h2>
      <form
        class="row card"
        onSubmit={(e) => {
          e.preventDefault();
          const auth = String(new FormData(e.currentTarget).get("token"));
          void connect(auth || token.value);
        }}
        autocomplete="off"
      >
        <Field label="By">
          {(id) => (
            <select
              id={id}
              value={way.value}
              onChange={(e) => {
                way.value = e.currentTarget.value as Way;
              }}
            >
              <option value="websocket">WebSocket</option>
              <option value="sse">server-sent events</option>
              <option value="poll">long polls</option>
            </select>
          )}
        </Field>
        <Field label="Token" hint="this page's, if empty">
          {(id) => <input id={id} name="token" type="password" autocomplete="off" />}
        </Field>
        <button type="submit" class="primary">
          Connect
        </button>
        <button
          type="button"
          disabled={!tide.current && state.value === "idle"}
          onClick={() => void attempt(disconnect)}
        >
          Disconnect
        </button>
        <span
          id="playground-state"
          class={`state ${connected ? "good" : state.value === "failed" ? "bad" : "wait"}`}
          role="status"
        >
          {state.value}
        </span>
      </form>
      <Refusal error={error.value} />
      <div class="row card">
        <Field label="Topic">
          {(id) => (
            <>
              <input
                id={id}
                list={`${id}-list`}
                value={topic.value}
                spellcheck={false}
                autocapitalize="none"
                onInput={(e) => {
                  topic.value = e.currentTarget.value.trim();
                }}
              />
              <datalist id={`${id}-list`}>
                {topics.value.map((t) => (
                  <option key={t} value={t} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <form
          class="row"
          onSubmit={(e) => {
            e.preventDefault();
            const data = new FormData(e.currentTarget);
            void subscribe(String(data.get("from")), String(data.get("key")));
          }}
        >
          <Field label="From">
            {(id) => (
              <select id={id} name="from">
                <option value="latest">now on</option>
                <option value="earliest">the oldest</option>
              </select>
            )}
          </Field>
          <Field label="Of the key">
            {(id) => <input id={id} name="key" spellcheck={false} autocapitalize="none" />}
          </Field>
          <button type="submit" disabled={!connected || !topic.value}>
            Subscribe
          </button>
          <button
            type="button"
            disabled={!sub.current}
            onClick={() =>
              void attempt(async () => {
                await sub.current?.unsubscribe();
                sub.current = undefined;
                note("note", "unsubscribed");
              })
            }
          >
            Unsubscribe
          </button>
        </form>
        <form
          class="row"
          onSubmit={(e) => {
            e.preventDefault();
            const data = new FormData(e.currentTarget);
            const run = (e.submitter as HTMLButtonElement | null)?.value === "request" ? request : publish;
            void run(String(data.get("key")), String(data.get("value")));
          }}
        >
          <Field label="Key">
            {(id) => <input id={id} name="key" maxLength={1024} spellcheck={false} autocapitalize="none" />}
          </Field>
          <Field label="Value" hint="JSON">
            {(id) => (
              <input
                id={id}
                name="value"
                required
                defaultValue={'{"total":12}'}
                spellcheck={false}
                autocapitalize="none"
              />
            )}
          </Field>
          <button type="submit" value="publish" disabled={!connected || !topic.value}>
            Publish
          </button>
          <button
            type="submit"
            value="request"
            disabled={!topic.value}
            title="A member of a group of the topic answers, such as: tidewire respond TOPIC --exec cat"
          >
            Request
          </button>
        </form>
      </div>
      <Histogram trips={trips.value} />
      <h3>What goes over the wire, the newest first</h3>
      {lines.value.length === 0 && (
        <p class="quiet">Connect, subscribe to a topic and publish to it: the frames appear here.</p>
      )}
      <ol class="frames" aria-label="Frames">
        {lines.value.map((l) => (
          <li key={l.id} class={l.sign}>
            <b>{l.sign === "out" ? "sent" : l.sign === "in" ? "came" : "client"}</b>
            <code>{l.text}</code>
          </li>
        ))}
      </ol>
      <h3>The same in a program</h3>
      <pre>{program(way.value, topic.value || "orders")}</pre>
    </section>
  );
}

/** A WebSocket that tells of its frames. A token in a frame is not shown. */
function spied(tell: (sign: Line["sign"], text: string) => void): typeof WebSocket {
  return class extends WebSocket {
    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols);
      this.addEventListener("message", (e) => tell("in", String(e.data)));
    }
    override send(data: string): void {
      tell("out", String(data).replace(/("token":")[^"]*/g, "$1…"));
      super.send(data);
    }
  };
}

function Histogram({ trips }: { trips: typeof none }) {
  if (!trips.all.length) return null;
  const most = Math.max(...trips.counts);
  const seconds = (q: number) => latency((quantileAt(trips, q) ?? 0) / 1000);
  return (
    <figure
      class="chart"
      aria-label={`Round trips of ${trips.all.length} publishes: p50 ${seconds(0.5)}, p99 ${seconds(0.99)}`}
    >
      <figcaption>
        <b>Round trips</b> {trips.all.length} publishes, p50 {seconds(0.5)}, p99 {seconds(0.99)}
      </figcaption>
      <ol class="bars" aria-hidden="true">
        {bounds.map((b, i) => (
          <li key={b}>
            <meter value={trips.counts[i]! / most} />
            <span>
              {b === Number.POSITIVE_INFINITY ? "more" : `≤ ${b} ms`}: {trips.counts[i]}
            </span>
          </li>
        ))}
      </ol>
    </figure>
  );
}

function program(way: Way, topic: string): string {
  const feature = way === "websocket" ? "" : way;
  return `import { createClient${feature && `, ${feature}`} } from "tidewire";

const tide = createClient({ url: ${JSON.stringify(location.origin)}${feature && `, use: [${feature}()]`} });
tide.subscribe(${JSON.stringify(topic)}, (m) => console.log(m.key, m.value));
await tide.publish(${JSON.stringify(topic)}, { total: 12 }, { key: "alice" });`;
}
