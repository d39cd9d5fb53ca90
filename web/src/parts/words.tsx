// What a screen says when it has nothing to show, or something went wrong.

import type { ComponentChildren } from "preact";
import { ApiError, messageOf } from "../live/api.js";

/** What was refused, in the words of the API. */
export function Refusal({ error, what }: { error: unknown; what?: string }) {
  if (!error) return null;
  const code = error instanceof ApiError && error.code !== "network" ? error.code : "";
  return (
    <p class="refusal" role="alert">
      {what && <b>{what} </b>}
      {messageOf(error)} {code && <a href={`/problems/${encodeURIComponent(code)}`}>{code}</a>}
    </p>
  );
}

/** What to do where there is nothing yet, with the line that does it in a shell. */
export function Empty({ title, children, shell }: { title: string; children?: ComponentChildren; shell?: string }) {
  return (
    <div class="empty">
      <h3>{title}</h3>
      {children}
      {shell && <pre>{shell}</pre>}
    </div>
  );
}

export const Waiting = ({ what }: { what: string }) => (
  <p class="quiet" role="status">
    Loading {what} …
  </p>
);

export function Fact({ name, children, bad }: { name: string; children: ComponentChildren; bad?: boolean }) {
  return (
    <div class={bad ? "fact bad" : "fact"}>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
