// JSON whose numbers stay as they were written: a record's 12345678901234567890 is
// shown, and sent again, digit by digit. Where a browser cannot do that (no source
// text of numbers), they are as JavaScript has them.

interface Exact {
  parse(text: string, reviver: (key: string, value: unknown, context?: { source?: string }) => unknown): unknown;
  rawJSON?(text: string): unknown;
}

const exact = JSON as unknown as Exact;

export function parse<T>(text: string): T {
  const raw = exact.rawJSON;
  if (!raw) return JSON.parse(text) as T;
  return exact.parse(text, (_, value, context) => {
    const source = context?.source;
    return typeof value === "number" && source !== undefined && String(value) !== source ? raw(source) : value;
  }) as T;
}

/** Whether a value is a number that JavaScript would have changed. */
export const isRaw = (value: unknown): boolean =>
  (JSON as unknown as { isRawJSON?(v: unknown): boolean }).isRawJSON?.(value) ?? false;
