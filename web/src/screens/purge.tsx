import { type Signal, useSignal } from "@preact/signals";
import { count, several } from "../core/format.js";
import { offsetsOf } from "../core/groups.js";
import { type Cut, cutAll, cutOffsets, goes, purgeBody } from "../core/purge.js";
import type { Topic } from "../core/wire.js";
import { api, at } from "../live/api.js";
import { Confirm } from "../parts/dialog.js";
import { Field } from "../parts/field.js";
import { Table } from "../parts/table.js";
import { Refusal } from "../parts/words.js";

/** What is asked before records are discarded: of which topic, and which of it. */
export interface Discard {
  topic: string;
  cuts: Cut[];
}

const purge = (topic: string, cuts: readonly Cut[]): Promise<unknown> =>
  api(at("topics", topic, "purge"), { method: "POST", json: purgeBody(cuts) });

/** Finds out what would go, as the leaders say it now, and has it asked. */
export async function ask(
  into: Signal<Discard | undefined>,
  error: Signal<unknown>,
  topic: string,
  which: (topic: Topic) => Cut[],
): Promise<void> {
  error.value = undefined;
  try {
    into.value = { topic, cuts: which(await api<Topic>(at("topics", topic, "metadata"))) };
  } catch (thrown) {
    error.value = thrown;
  }
}

/** Discards dead letters: the oldest of a partition up to one of them, or all. */
export function DiscardLetters({
  discard: { topic, cuts },
  all,
  done,
  close,
}: {
  discard: Discard;
  all: boolean;
  done(): void;
  close(): void;
}) {
  const n = goes(cuts);
  const [one] = cuts;
  return (
    <Confirm
      title={n ? `Discard ${several(n, "letter")}?` : "Nothing to discard"}
      action={n ? "Discard" : "Close"}
      run={async () => {
        if (n) await purge(topic, cuts);
        done();
      }}
      close={close}
    >
      {!all && one && (
        <p id="goes">
          A log gives up its oldest records only. So the letter at offset {count(one.before - 1)} of partition{" "}
          {one.partition} goes with every older one of that partition: {several(n, "letter")}, offsets{" "}
          {count(one.earliest)} to {count(one.before - 1)}.
        </p>
      )}
      {all && (
        <p id="goes">
          {n
            ? `All that ${topic} holds now: ${several(n, "letter")}. Letters that come from now on stay.`
            : `${topic} holds no letter.`}
        </p>
      )}
      {n > 0 && <p>They cannot be inspected or published again afterwards, and nothing brings them back.</p>}
    </Confirm>
  );
}

/** Purges a topic: all that is there, or what is below some offsets. Its name has to be typed. */
export function Purge({ topic, done, close }: { topic: Topic; done(): void; close(): void }) {
  const only = useSignal(false);
  const text = useSignal("");
  let cuts: Cut[] = [];
  let wrong: unknown;
  try {
    cuts = only.value ? (text.value.trim() ? cutOffsets(topic, offsetsOf(text.value)) : []) : cutAll(topic);
  } catch (thrown) {
    wrong = thrown;
  }
  const n = goes(cuts);
  return (
    <Confirm
      title={`Purge ${topic.name}?`}
      action="Purge"
      typed={topic.name}
      run={async () => {
        if (wrong) throw wrong;
        if (!n) throw new Error("Nothing would go.");
        await purge(topic.name, cuts);
        done();
      }}
      close={close}
    >
      <label class="check">
        <input
          type="checkbox"
          checked={only.value}
          onChange={(e) => {
            only.value = e.currentTarget.checked;
          }}
        />{" "}
        Only what is below some offsets
      </label>
      {only.value && (
        <Field label="Below the offsets" hint="0:42, 1:17">
          {(id) => (
            <input
              id={id}
              value={text.value}
              spellcheck={false}
              onInput={(e) => {
                text.value = e.currentTarget.value;
              }}
            />
          )}
        </Field>
      )}
      <Refusal error={wrong} />
      <p id="goes">
        {n
          ? `${several(n, "record")} ${n === 1 ? "goes" : "go"}. Records that are published from now on stay.`
          : "Nothing would go."}
      </p>
      {cuts.length > 1 && (
        <Table
          name="What goes"
          rows={cuts}
          id={(c) => String(c.partition)}
          sorted="Partition"
          columns={[
            { head: "Partition", cell: (c) => c.partition, sort: (c) => c.partition },
            { head: "From", cell: (c) => count(c.earliest), number: true },
            { head: "Below", cell: (c) => count(c.before), number: true },
            { head: "Records", cell: (c) => count(c.before - c.earliest), number: true },
          ]}
        />
      )}
      <p>
        Nothing brings them back. What a group has not done with is expired for it, and whoever reads there is told of
        the gap.
      </p>
    </Confirm>
  );
}
