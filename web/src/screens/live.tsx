import { batch, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { count, rate } from "../core/format.js";
import { keyQuery, matches, newestFirst, place } from "../core/messages.js";
import { fromSdk } from "../core/sdk.js";
import type { Message, Topic } from "../core/wire.js";
import { client } from "../live/client.js";
import { backwards } from "../live/read.js";
import { Spark } from "../parts/spark.js";
import { Refusal } from "../parts/words.js";
import { MessageList } from "./messagelist.js";

/** Messages that are shown, and as many that wait while it is paused. */
const most = 300;
const firstMessages = 50;
const rateSeconds = 60;
/** As fast as one can look. */
const showEveryMs = 200;

/** Follows a topic with the SDK, after the newest that were there. */
export function Live({ topic, query }: { topic: Topic; query: Record<string, string> }) {
  const shown = useSignal<Message[]>([]);
  const held = useSignal<Message[]>([]);
  const paused = useSignal(false);
  const state = useSignal("connecting");
  const gap = useSignal("");
  const error = useSignal<unknown>(undefined);
  const received = useSignal(0);
  const perSecond = useSignal<number[]>(new Array(rateSeconds).fill(0));
  const filter = useRef({ key: "", header: "", text: "" });
  filter.current = { key: "", header: query.header ?? "", text: query.text ?? "" };

  useEffect(() => {
    const life = new AbortController();
    let fresh: Message[] = [];
    let timer = 0;
    const partition = query.partition ? Number(query.partition) : undefined;
    const { key, key_prefix: keyPrefix } = keyQuery(query.key ?? "");
    const before = new Map<number, number>(); // of each partition the last that was read as one from before
    const show = () => {
      clearTimeout(timer);
      timer = 0;
      const list = fresh
        .filter((m) => m.offset > (before.get(m.partition) ?? -1) && matches(m, filter.current))
        .reverse();
      fresh = [];
      const into = paused.peek() ? held : shown;
      into.value = [...list, ...into.peek()].slice(0, most);
    };
    const offs: (() => void)[] = [];
    try {
      const tide = client();
      const sub = tide.subscribe(
        topic.name,
        (m) => {
          fresh.push(fromSdk(m));
          if (fresh.length > most) fresh.shift();
          received.value = received.peek() + 1;
          const now = perSecond.peek();
          now[now.length - 1]!++;
          timer ||= window.setTimeout(show, showEveryMs);
        },
        { from: "latest", key, keyPrefix, partition, signal: life.signal },
      );
      offs.push(
        sub.on("gap", (g) => {
          gap.value = `Messages are missing here (${g.reason}): kept from ${g.earliest} on (partition:offset).`;
        }),
        sub.on("error", (thrown) => {
          error.value = thrown;
          state.value = "ended";
        }),
        tide.on("state", ({ state: s }) => {
          if (s !== "connected") state.value = s;
        }),
        sub.on("recovered", () => {
          state.value = "live"; // only now does it get what comes
        }),
      );
      sub
        .ready()
        .then(
          async () => {
            state.value = "live";
            const { messages } = await backwards(topic.name, partition, keyQuery(query.key ?? "")).next(
              firstMessages,
              life.signal,
            );
            show();
            const there = new Set([...shown.peek(), ...held.peek()].map(place));
            const older = messages.filter((m) => !there.has(place(m)) && matches(m, filter.current));
            for (const m of older) before.set(m.partition, Math.max(m.offset, before.get(m.partition) ?? -1));
            shown.value = [...shown.peek(), ...older.sort(newestFirst)].slice(0, most);
          },
          () => {}, // the subscription's own error says it
        )
        .catch(() => {}); // what was before is not shown; what comes is
    } catch (thrown) {
      error.value = thrown;
    }
    const ticking = setInterval(() => {
      perSecond.value = [...perSecond.peek().slice(1), 0];
    }, 1000);
    return () => {
      life.abort();
      clearInterval(ticking);
      clearTimeout(timer);
      for (const off of offs) off();
    };
  }, []);

  const toggle = () =>
    batch(() => {
      paused.value = !paused.value;
      if (!paused.value) {
        shown.value = [...held.value, ...shown.value].slice(0, most);
        held.value = [];
      }
    });
  const list = shown.value.filter((m) => matches(m, filter.current));
  const seconds = perSecond.value.slice(-6, -1);
  return (
    <>
      <div class="row">
        <span
          id="live-state"
          class={`state ${state.value === "live" ? (paused.value ? "wait" : "good") : state.value === "failed" || state.value === "ended" ? "bad" : "wait"}`}
          role="status"
        >
          {state.value === "live"
            ? paused.value
              ? `Paused, ${count(held.value.length)}${held.value.length === most ? " or more" : ""} waiting`
              : "Live"
            : state.value}
        </span>
        <span>
          {count(received.value)} received, {rate(seconds.reduce((a, b) => a + b, 0) / seconds.length)} a second{" "}
          <Spark values={perSecond.value.slice(0, -1)} />
        </span>
        <button type="button" data-key="p" aria-pressed={paused.value} onClick={toggle}>
          {paused.value ? "Go on" : "Pause"}
        </button>
        <button
          type="button"
          onClick={() => {
            shown.value = [];
            held.value = [];
          }}
        >
          Clear
        </button>
      </div>
      {gap.value && <p class="refusal">{gap.value}</p>}
      <Refusal error={error.value} />
      {list.length === 0 && <p class="quiet">Nothing yet: what is published from now on appears here.</p>}
      <MessageList topic={topic} messages={list} />
    </>
  );
}
