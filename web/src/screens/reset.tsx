import { useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";
import { count, several, unknown } from "../core/format.js";
import { type ResetTo, resetBody } from "../core/groups.js";
import type { Group, Moved } from "../core/wire.js";
import { api, at } from "../live/api.js";
import { Field } from "../parts/field.js";
import { Table } from "../parts/table.js";
import { Refusal } from "../parts/words.js";

/** Moves a group, after it was shown from where to where. */
export function Reset({ group, close }: { group: Group; close(): void }) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const kind = useSignal<ResetTo["kind"]>("earliest");
  const typed = useSignal("");
  const force = useSignal(false);
  const plan = useSignal<Moved | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  useEffect(() => box.current!.showModal(), []);

  const call = async (dryRun: boolean) => {
    error.value = undefined;
    try {
      const to = { kind: kind.value, time: typed.value, text: typed.value } as ResetTo;
      // How it would be is asked for by force, so that it shows while there are members too.
      const json = { ...resetBody(to), dry_run: dryRun, force: dryRun || force.value };
      const moved = await api<Moved>(at("groups", group.topic, group.group, "offsets"), { method: "PUT", json });
      if (dryRun) plan.value = moved;
      else close();
    } catch (thrown) {
      error.value = thrown;
    }
  };
  const members = group.members.length;
  const anew = () => {
    plan.value = undefined;
    error.value = undefined;
  };
  const input = (e: { currentTarget: HTMLInputElement }) => {
    typed.value = e.currentTarget.value;
    anew();
  };
  return (
    <dialog ref={box} aria-labelledby={heading} onClose={close}>
      <form
        class="stack"
        onSubmit={(e) => {
          e.preventDefault();
          void call(plan.value === undefined);
        }}
      >
        <h2 id={heading}>Move {group.group} to other offsets</h2>
        <div class="row">
          <Field label="To">
            {(id) => (
              <select
                id={id}
                value={kind.value}
                onChange={(e) => {
                  kind.value = e.currentTarget.value as ResetTo["kind"];
                  typed.value = "";
                  anew();
                }}
              >
                <option value="earliest">the oldest record</option>
                <option value="latest">the end</option>
                <option value="time">a time</option>
                <option value="offsets">offsets</option>
              </select>
            )}
          </Field>
          {(kind.value === "time" || kind.value === "offsets") && (
            <Field
              label={kind.value === "time" ? "Time" : "Offsets"}
              hint={kind.value === "time" ? "local" : "0:42, 1:17"}
            >
              {(id) =>
                kind.value === "time" ? (
                  <input id={id} type="datetime-local" step="1" required value={typed.value} onInput={input} />
                ) : (
                  <input id={id} required value={typed.value} onInput={input} />
                )
              }
            </Field>
          )}
        </div>
        {plan.value && (
          <Table
            name="From where to where"
            rows={plan.value.partitions}
            id={(p) => String(p.partition)}
            sorted="Partition"
            columns={[
              { head: "Partition", cell: (p) => p.partition, sort: (p) => p.partition },
              { head: "From", cell: (p) => count(p.from), number: true },
              { head: "To", cell: (p) => count(p.to), number: true },
              { head: "Difference", cell: (p) => difference(p.from, p.to), number: true },
            ]}
          />
        )}
        {plan.value && members > 0 && (
          <label class="check">
            <input
              type="checkbox"
              checked={force.value}
              onChange={(e) => {
                force.value = e.currentTarget.checked;
              }}
            />{" "}
            By force: the lives of its {several(members, "member")} end; who still runs joins again by itself
          </label>
        )}
        <Refusal error={error.value} />
        <div class="row end">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class={plan.value ? "danger" : "primary"}>
            {plan.value ? "Move" : "Show what would change"}
          </button>
        </div>
      </form>
    </dialog>
  );
}

const difference = (from: number | null, to: number): string =>
  from === null
    ? unknown
    : from === to
      ? "stays"
      : to > from
        ? `${count(to - from)} passed over`
        : `${count(from - to)} again`;
