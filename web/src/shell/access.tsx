import { useSignal } from "@preact/signals";
import { refused, token } from "../live/api.js";
import { Field } from "../parts/field.js";

/** Where a token is given, and taken back. It stays in this tab. */
export function Access() {
  const typed = useSignal("");
  const open = useSignal(false);
  const needed = refused.value !== "";
  if (!needed && !open.value) {
    return (
      <button
        type="button"
        class="small"
        aria-expanded="false"
        onClick={() => {
          open.value = true;
        }}
      >
        {token.value ? "Token given" : "Token"}
      </button>
    );
  }
  return (
    <form
      class="access"
      onSubmit={(e) => {
        e.preventDefault();
        refused.value = "";
        token.value = typed.value.trim();
        typed.value = "";
        open.value = false;
      }}
    >
      <Field label="Token" hint="kept in this tab alone">
        {(id) => (
          <input
            id={id}
            type="password"
            autocomplete="off"
            value={typed.value}
            onInput={(e) => {
              typed.value = e.currentTarget.value;
            }}
          />
        )}
      </Field>
      <button type="submit" class="primary">
        Use
      </button>
      {token.value && (
        <button
          type="button"
          onClick={() => {
            token.value = "";
            refused.value = "";
            open.value = false;
          }}
        >
          Forget
        </button>
      )}
      {!needed && (
        <button
          type="button"
          onClick={() => {
            open.value = false;
          }}
        >
          Close
        </button>
      )}
      {needed && (
        <p class="refusal" role="alert">
          {refused.value} A shell makes one: <code>tidewire token --auth-key-file KEY --admin</code>
        </p>
      )}
    </form>
  );
}
