import { type Signal, useComputed, useSignal } from "@preact/signals";
import type { VNode } from "preact";
import { useRef } from "preact/hooks";
import { death, place, preview, tally } from "../core/messages.js";
import { cutThrough } from "../core/purge.js";
import type { Message, Topic } from "../core/wire.js";
import { Refusal } from "../parts/words.js";
import { shown } from "../shell/time.js";
import { MessageDetail } from "./message.js";
import { ask, type Discard, DiscardLetters } from "./purge.js";
import { Replay } from "./replay.js";

/** Rows that are made at once. */
const pageRows = 200;

interface Props {
  topic: Topic;
  messages: readonly Message[];
  /** Dead letters were discarded: the list is another. Without it none can be. */
  discarded?: () => void;
}

/** Messages, a line each, which opens; with what can be done with those that are chosen. */
export function MessageList({ topic, messages, discarded }: Props) {
  const chosen = useSignal<ReadonlySet<string>>(new Set());
  const rows = useSignal(pageRows);
  const replaying = useSignal(false);
  const discarding = useSignal<Discard | undefined>(undefined);
  const refused = useSignal<unknown>(undefined);
  // A row is made once: where hundreds come in a second, those that stay cost nothing.
  const made = useRef(new WeakMap<Message, VNode>());
  if (!messages.length) return null;
  const rowOf = (m: Message) => {
    const row = made.current.get(m) ?? <Row key={place(m)} m={m} chosen={chosen} />;
    made.current.set(m, row);
    return row;
  };
  const selected = messages.filter((m) => chosen.value.has(place(m)));
  const all = selected.length === messages.length;
  const reasons = tally(messages.flatMap((m) => death(m)?.reason || []));
  return (
    <>
      <div class="row">
        <label class="check">
          <input
            type="checkbox"
            checked={all}
            onChange={() => {
              chosen.value = all ? new Set() : new Set(messages.map(place));
            }}
          />{" "}
          {selected.length ? `${selected.length} chosen` : "Choose all"}
        </label>
        <button
          type="button"
          disabled={!selected.length}
          onClick={() => {
            replaying.value = true;
          }}
        >
          Publish again …
        </button>
        {discarded && messages.some(death) && (
          <button
            type="button"
            disabled={selected.length !== 1}
            title="Choose one letter: it is discarded with every older one of its partition"
            onClick={() => {
              const { partition, offset } = selected[0]!;
              void ask(discarding, refused, topic.name, (t) => cutThrough(t, partition, offset));
            }}
          >
            Discard up to here …
          </button>
        )}
        <button type="button" onClick={() => download(topic.name, selected.length ? selected : messages)}>
          Download {selected.length ? "chosen" : "all"} as JSON lines
        </button>
      </div>
      <Refusal error={refused.value} />
      {reasons.length > 0 && (
        <p class="note" id="reasons">
          By reason: {reasons.map(([reason, n]) => `${reason} ${n}`).join(", ")}
        </p>
      )}
      <ol id="feed" aria-label="Messages">
        {messages.slice(0, rows.value).map(rowOf)}
      </ol>
      {messages.length > rows.value && (
        <button
          type="button"
          onClick={() => {
            rows.value += pageRows;
          }}
        >
          Show {Math.min(pageRows, messages.length - rows.value)} more of {messages.length - rows.value}
        </button>
      )}
      {discarding.value && (
        <DiscardLetters
          discard={discarding.value}
          all={false}
          done={() => {
            chosen.value = new Set();
            discarded?.();
          }}
          close={() => {
            discarding.value = undefined;
          }}
        />
      )}
      {replaying.value && (
        <Replay
          messages={selected}
          close={() => {
            replaying.value = false;
          }}
        />
      )}
    </>
  );
}

function Row({ m, chosen }: { m: Message; chosen: Signal<ReadonlySet<string>> }) {
  const open = useSignal(false);
  const id = place(m);
  const on = useComputed(() => chosen.value.has(id));
  const value = preview(m);
  const died = death(m);
  return (
    <li data-row={id}>
      <input
        type="checkbox"
        checked={on.value}
        aria-label={`Choose ${id}`}
        onChange={(e) => {
          const next = new Set(chosen.peek());
          if (e.currentTarget.checked) next.add(id);
          else next.delete(id);
          chosen.value = next;
        }}
      />
      <details
        onToggle={(e) => {
          open.value = e.currentTarget.open;
        }}
      >
        <summary>
          <time dateTime={m.timestamp} title={m.timestamp}>
            {shown(m.timestamp)}
          </time>
          <span class="place" title={`partition ${m.partition}, offset ${m.offset}`}>
            {m.partition} : {m.offset}
          </span>
          <span class={m.key === null ? "key none" : "key"}>{m.key ?? "no key"}</span>
          <span class={value.odd ? "value odd" : "value"}>{value.text}</span>
          {died && (
            <span class="died">
              {died.reason || "dead"}{" "}
              <small>
                {died.topic} {died.place}, group {died.group}, deliveries {died.deliveries}
              </small>
            </span>
          )}
        </summary>
        {open.value && <MessageDetail m={m} />}
      </details>
    </li>
  );
}

function download(name: string, messages: readonly Message[]): void {
  const url = URL.createObjectURL(
    new Blob([messages.map((m) => `${JSON.stringify(m)}\n`).join("")], { type: "application/x-ndjson" }),
  );
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name}.jsonl`;
  link.click();
  URL.revokeObjectURL(url);
}
