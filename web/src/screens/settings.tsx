import { useSignal } from "@preact/signals";
import { changes, settings } from "../core/settings.js";
import type { Topic } from "../core/wire.js";
import { api, at } from "../live/api.js";
import { go } from "../live/route.js";
import { Confirm } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { Refusal } from "../parts/words.js";
import { Purge } from "./purge.js";

export function Settings({ topic, changed }: { topic: Topic; changed(): void }) {
  const error = useSignal<unknown>(undefined);
  const note = useSignal("");
  const deleting = useSignal(false);
  const purging = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    error.value = undefined;
    note.value = "";
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const json = changes(topic, (name) => data.get(name) as string | null);
    if (!Object.keys(json).length) {
      note.value = "Nothing is different.";
      return;
    }
    try {
      await api(at("topics", topic.name), { method: "PATCH", json });
      note.value = `Changed: ${Object.keys(json).join(", ")}.`;
      changed();
    } catch (thrown) {
      error.value = thrown;
    }
  };
  return (
    <>
      <form class="card stack" id="settings" autocomplete="off" onSubmit={submit}>
        <div class="row">
          {settings.map((s) =>
            s.kind === "boolean" ? (
              <label key={s.name} class="check">
                <input type="checkbox" name={s.name} defaultChecked={s.of(topic) === true} /> {s.label}
              </label>
            ) : (
              <Field key={s.name} label={s.label} hint={s.hint}>
                {(id) =>
                  typeof s.kind === "object" ? (
                    <select id={id} name={s.name}>
                      {s.kind.map((k) => (
                        <option key={k} selected={k === s.of(topic)}>
                          {k}
                        </option>
                      ))}
                    </select>
                  ) : s.kind === "number" ? (
                    <input id={id} name={s.name} type="number" min="0" required defaultValue={String(s.of(topic))} />
                  ) : (
                    <input id={id} name={s.name} required spellcheck={false} defaultValue={String(s.of(topic))} />
                  )
                }
              </Field>
            ),
          )}
        </div>
        <div class="row">
          <button type="submit" class="primary">
            Change
          </button>
          <button
            type="button"
            class="danger"
            onClick={() => {
              purging.value = true;
            }}
          >
            Purge …
          </button>
          <button
            type="button"
            class="danger"
            onClick={() => {
              deleting.value = true;
            }}
          >
            Delete the topic
          </button>
          <p role="status" class="note">
            {note.value}
          </p>
        </div>
        <Refusal error={error.value} />
      </form>
      {purging.value && (
        <Purge
          topic={topic}
          done={changed}
          close={() => {
            purging.value = false;
          }}
        />
      )}
      {deleting.value && (
        <Confirm
          title={`Delete ${topic.name}?`}
          action="Delete"
          typed={topic.name}
          run={async () => {
            await api(at("topics", topic.name), { method: "DELETE" });
            go(["topics"]);
          }}
          close={() => {
            deleting.value = false;
          }}
        >
          <p>Its records and its groups are gone with it, and nothing brings them back.</p>
        </Confirm>
      )}
    </>
  );
}
