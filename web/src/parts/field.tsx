import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface Props {
  label: string;
  hint?: string;
  wide?: boolean;
  /** Gets the id that the label is for. */
  children(id: string): ComponentChildren;
}

/** A field with its label. */
export function Field({ label, hint, wide, children }: Props) {
  const id = useId();
  return (
    <div class={wide ? "field wide" : "field"}>
      <label for={id}>
        {label} {hint && <span>({hint})</span>}
      </label>
      {children(id)}
    </div>
  );
}
