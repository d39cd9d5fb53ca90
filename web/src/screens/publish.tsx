import { useSignal } from "@preact/signals";
import { parseHeaders } from "../core/messages.js";
import { href } from "../core/route.js";
import { client } from "../live/client.js";
import { route } from "../live/route.js";
import { Field } from "../parts/field.js";
import { Refusal } from "../parts/words.js";

type Sort = "json" | "text";

/** Publishes one record with the SDK: it is in the log once, also where the answer was lost. */
export function Publish({ topic }: { topic: string }) {
  const { key: givenKey = "", value: givenValue = "" } = route.value.query;
  const sort = useSignal<Sort>("json");
  const note = useSignal<{ partition: number; offset?: number } | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const busy = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const text = String(data.get("value"));
    note.value = undefined;
    error.value = undefined;
    busy.value = true;
    try {
      const value: unknown = sort.value === "json" ? JSON.parse(text) : text;
      note.value = await client().publish(topic, value, {
        key: String(data.get("key")) || undefined,
        headers: parseHeaders(String(data.get("headers"))),
        contentType: sort.value === "text" ? "text/plain; charset=utf-8" : undefined,
        timeoutMs: 15_000,
      });
    } catch (thrown) {
      error.value = thrown instanceof SyntaxError ? new Error(`The value is not JSON: ${thrown.message}`) : thrown;
    } finally {
      busy.value = false;
    }
  };
  return (
    <form class="card stack" id="publish" autocomplete="off" onSubmit={submit}>
      <div class="row">
        <Field label="Key" hint="optional; one key, one order">
          {(id) => (
            <input
              id={id}
              name="key"
              maxLength={1024}
              spellcheck={false}
              autocapitalize="none"
              defaultValue={givenKey}
            />
          )}
        </Field>
        <Field label="The value is">
          {(id) => (
            <select
              id={id}
              value={sort.value}
              onChange={(e) => {
                sort.value = e.currentTarget.value as Sort;
              }}
            >
              <option value="json">JSON</option>
              <option value="text">text</option>
            </select>
          )}
        </Field>
      </div>
      <Field label="Value" hint="Ctrl+Enter publishes" wide>
        {(id) => (
          <textarea
            id={id}
            name="value"
            rows={6}
            required
            spellcheck={false}
            autocapitalize="none"
            defaultValue={givenValue}
            onKeyDown={(e) => {
              if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) e.currentTarget.form?.requestSubmit();
            }}
          />
        )}
      </Field>
      <Field label="Headers" hint="optional; name: value, one a line" wide>
        {(id) => <textarea id={id} name="headers" rows={2} spellcheck={false} autocapitalize="none" />}
      </Field>
      <div class="row">
        <button type="submit" class="primary" disabled={busy.value}>
          Publish
        </button>
        <p role="status" class="note">
          {busy.value && "Publishing …"}
          {note.value && (
            <>
              Kept in partition {note.value.partition} at{" "}
              <a
                href={href(["topics", topic, "messages"], {
                  from: "offset",
                  partition: note.value.partition,
                  offset: note.value.offset,
                })}
              >
                offset {note.value.offset}
              </a>
              .
            </>
          )}
        </p>
      </div>
      <Refusal error={error.value} />
    </form>
  );
}
