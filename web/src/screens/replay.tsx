import { useSignal } from "@preact/signals";
import { several } from "../core/format.js";
import { death, outcome, type Published, toLine } from "../core/messages.js";
import type { Message } from "../core/wire.js";
import { ApiError, at, text } from "../live/api.js";
import { Confirm } from "../parts/dialog.js";
import { Field } from "../parts/field.js";

/** Records of one call, far below what a body may be. */
const batchRecords = 500;

/** Publishes records again, each as it was, into one topic or each where it died. */
export function Replay({ messages, close }: { messages: readonly Message[]; close(): void }) {
  const origins = new Set(messages.map((m) => death(m)?.topic));
  const back = !origins.has(undefined);
  const home = useSignal(back);
  const target = useSignal("");
  const kept = useSignal(0);
  const refused = useSignal<Published[]>([]);
  const left = useSignal<readonly Message[]>(messages);

  async function run(): Promise<void> {
    refused.value = [];
    while (left.value.length) {
      const topic = home.value ? death(left.value[0]!)!.topic : target.value;
      const batch = left.value.filter((m) => !home.value || death(m)!.topic === topic).slice(0, batchRecords);
      const answer = await text(at("topics", topic), {
        method: "POST",
        type: "application/x-ndjson",
        body: batch.map((m) => `${toLine(m)}\n`).join(""),
      });
      const became = outcome(answer);
      kept.value += became.kept;
      refused.value = [...refused.value, ...became.refused];
      left.value = left.value.filter((m) => !batch.includes(m)); // a second try begins behind what was answered
    }
    if (refused.value.length) {
      const [first] = refused.value;
      throw new ApiError({
        code: first?.code ?? "internal",
        detail: `${several(kept.value, "record")} kept, ${refused.value.length} refused: ${first?.detail}`,
      });
    }
  }

  return (
    <Confirm title={`Publish ${several(messages.length, "record")} again?`} action="Publish" run={run} close={close}>
      {back && (
        <label class="check">
          <input
            type="checkbox"
            checked={home.value}
            onChange={(e) => {
              home.value = e.currentTarget.checked;
            }}
          />{" "}
          Into {[...origins].join(", ")}, where they died
        </label>
      )}
      {!home.value && (
        <Field label="Into the topic">
          {(id) => (
            <input
              id={id}
              required
              value={target.value}
              spellcheck={false}
              autocapitalize="none"
              onInput={(e) => {
                target.value = e.currentTarget.value.trim();
              }}
            />
          )}
        </Field>
      )}
      <p>
        Each is published anew with its key, value, type and own headers. It comes to every group and reader of that
        topic, also to those that are done with it, and what is here stays here.
      </p>
    </Confirm>
  );
}
