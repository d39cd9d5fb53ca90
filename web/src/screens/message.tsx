import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { asCommand, asCurl, asScript } from "../core/copy.js";
import { bytes } from "../core/format.js";
import { isRaw } from "../core/json.js";
import { hex, isText, pretty, valueBytes } from "../core/messages.js";
import { href } from "../core/route.js";
import type { Message, RecordStatus } from "../core/wire.js";
import { api, at } from "../live/api.js";
import { one } from "../live/read.js";
import { Refusal } from "../parts/words.js";
import { shown } from "../shell/time.js";

type View = "tree" | "text" | "hex";

/** All that one record is: as it is kept, for what a stream brought has its numbers as JavaScript has them. */
export function MessageDetail({ m: given }: { m: Message }) {
  const exact = useSignal<Message>(given);
  const status = useSignal<RecordStatus | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const structured =
    given.value_base64 === undefined && !isText(given) && typeof given.value === "object" && given.value !== null;
  const view = useSignal<View>(structured ? "tree" : given.value_base64 !== undefined ? "hex" : "text");
  useEffect(() => {
    const life = new AbortController();
    const { signal } = life;
    one(given.topic, given.partition, given.offset, signal).then(
      (m) => {
        if (m) exact.value = m;
      },
      () => {}, // it stays as it came
    );
    api<RecordStatus>(at("topics", given.topic, given.partition, given.offset, "status"), { signal }).then(
      (s) => {
        status.value = s;
      },
      (thrown) => {
        if (!signal.aborted) error.value = thrown;
      },
    );
    return () => life.abort();
  }, []);
  const m = exact.value;
  const raw = valueBytes(m);
  return (
    <div class="detail">
      <dl class="pairs">
        <dt>Type</dt>
        <dd>{m.content_type}</dd>
        <dt>Size</dt>
        <dd>{bytes(raw.length)}</dd>
        <dt>Time</dt>
        <dd>{m.timestamp}</dd>
        {Object.entries(m.headers).map(([name, value]) => (
          <HeaderPair key={name} name={name} value={value} />
        ))}
      </dl>
      <div class="row tight" role="group" aria-label="The value as">
        {(["tree", "text", "hex"] as const).map((v) => (
          <button
            key={v}
            type="button"
            class="small"
            aria-pressed={view.value === v}
            disabled={v === "tree" && !structured}
            onClick={() => {
              view.value = v;
            }}
          >
            {v}
          </button>
        ))}
        <Copy label="curl" text={asCurl(location.origin, m)} />
        {m.value_base64 === undefined && <Copy label="command" text={asCommand(location.origin, m)} />}
        {m.value_base64 === undefined && <Copy label="SDK line" text={asScript(m)} />}
        {m.value_base64 === undefined && !m.tombstone && (
          <a href={href(["topics", m.topic, "publish"], { key: m.key ?? undefined, value: pretty(m).slice(0, 4096) })}>
            Edit a copy
          </a>
        )}
      </div>
      {view.value === "tree" ? (
        <Tree value={m.value} />
      ) : (
        <pre class="value">{view.value === "hex" ? hex(raw) : pretty(m)}</pre>
      )}
      <h4>In its groups</h4>
      <Refusal error={error.value} />
      {status.value && (
        <ul class="plain">
          {status.value.groups.length === 0 && <li class="quiet">The topic has no groups.</li>}
          {status.value.groups.map((g) => (
            <li key={g.group}>
              <a href={href(["groups", m.topic, g.group])}>{g.group}</a> <span class="mark">{g.status}</span>{" "}
              {g.member && (
                <small>
                  with {g.member} until {g.lease_until && shown(g.lease_until)}, delivery {g.delivery}
                </small>
              )}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function HeaderPair({ name, value }: { name: string; value: string }) {
  return (
    <>
      <dt class="header">{name}</dt>
      <dd>{value}</dd>
    </>
  );
}

function Copy({ label, text }: { label: string; text: string }) {
  const done = useSignal("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      done.value = "copied";
    } catch {
      done.value = "not allowed";
    }
    setTimeout(() => {
      done.value = "";
    }, 2000);
  };
  return (
    <button type="button" class="small" title={text} onClick={copy}>
      Copy {label} <span role="status">{done.value}</span>
    </button>
  );
}

/** JSON whose objects and lists open and close. */
function Tree({ value, name }: { value: unknown; name?: string }) {
  const label = name === undefined ? null : <span class="name">{name}: </span>;
  if (typeof value !== "object" || value === null || isRaw(value)) {
    return (
      <div class="leaf">
        {label}
        <span class={`json ${isRaw(value) ? "number" : typeof value}`}>{JSON.stringify(value)}</span>
      </div>
    );
  }
  const entries = Object.entries(value);
  return (
    <details class="tree" open={entries.length <= 50}>
      <summary>
        {label}
        {Array.isArray(value) ? `[${entries.length}]` : `{${entries.length}}`}
      </summary>
      {entries.map(([k, v]) => (
        <Tree key={k} name={k} value={v} />
      ))}
    </details>
  );
}
