import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { Field } from "./field.js";
import { Refusal } from "./words.js";

interface Props {
  title: string;
  children?: ComponentChildren;
  /** What the button says that does it. */
  action: string;
  /** Has to be typed before. */
  typed?: string;
  run(): Promise<unknown>;
  close(): void;
}

/** Asks before something is done that cannot be taken back. */
export function Confirm({ title, children, action, typed, run, close }: Props) {
  const box = useRef<HTMLDialogElement>(null);
  const heading = useId();
  const word = useSignal("");
  const busy = useSignal(false);
  const error = useSignal<unknown>(undefined);
  useEffect(() => box.current!.showModal(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    busy.value = true;
    error.value = undefined;
    try {
      await run();
      close();
    } catch (thrown) {
      error.value = thrown;
    } finally {
      busy.value = false;
    }
  };
  return (
    <dialog ref={box} aria-labelledby={heading} onClose={close}>
      <form class="stack" onSubmit={submit}>
        <h2 id={heading}>{title}</h2>
        {children}
        {typed !== undefined && (
          <Field label={`Type ${typed} to confirm`}>
            {(id) => (
              <input
                id={id}
                autocomplete="off"
                spellcheck={false}
                value={word.value}
                onInput={(e) => {
                  word.value = e.currentTarget.value;
                }}
              />
            )}
          </Field>
        )}
        <Refusal error={error.value} />
        <div class="row end">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="danger" disabled={busy.value || (typed !== undefined && word.value !== typed)}>
            {action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
