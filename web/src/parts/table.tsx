import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

export interface Column<R> {
  head: string;
  cell(row: R): ComponentChildren;
  /** What rows are sorted by; a column without it is not sorted by. */
  sort?(row: R): string | number | null;
  number?: boolean;
  /** Whether a long value takes more than one line. */
  wrap?: boolean;
}

/** Rows that are made at once. */
const pageRows = 200;

interface Props<R> {
  name: string;
  rows: readonly R[];
  columns: readonly Column<R>[];
  id(row: R): string;
  /** The head of the column that sorts at first, with a minus for the greatest first. */
  sorted?: string;
}

function compare(a: string | number | null, b: string | number | null): number {
  if (a === null || b === null) return Number(a === null) - Number(b === null);
  return typeof a === "string" ? a.localeCompare(String(b)) : a - Number(b);
}

/** A table that is sorted by its heads; in a narrow window each row is a card. */
export function Table<R>({ name, rows, columns, id, sorted = "" }: Props<R>) {
  const by = useSignal(sorted);
  const shown = useSignal(pageRows);
  const [head, down] = by.value.startsWith("-") ? [by.value.slice(1), -1] : [by.value, 1];
  const column = columns.find((c) => c.head === head);
  const list = column?.sort ? [...rows].sort((a, b) => down * compare(column.sort!(a), column.sort!(b))) : rows;
  const left = list.length - shown.value;
  return (
    <div class="table">
      <table>
        <caption class="unseen">{name}</caption>
        <thead>
          <tr>
            {columns.map((c) => {
              const state = c !== column ? "none" : down > 0 ? "ascending" : "descending";
              return (
                <th
                  key={c.head}
                  scope="col"
                  class={c.number ? "number" : undefined}
                  aria-sort={c.sort ? state : undefined}
                >
                  {c.sort ? (
                    <button
                      type="button"
                      class="head"
                      onClick={() => {
                        by.value = c === column ? (down > 0 ? `-${c.head}` : c.head) : c.number ? `-${c.head}` : c.head;
                      }}
                    >
                      {c.head}
                    </button>
                  ) : (
                    c.head
                  )}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {list.slice(0, shown.value).map((row) => (
            <tr key={id(row)} data-id={id(row)}>
              {columns.map((c, i) => {
                const Cell = i === 0 ? "th" : "td";
                return (
                  <Cell
                    key={c.head}
                    scope={i === 0 ? "row" : undefined}
                    class={c.number ? "number" : c.wrap ? "wrap" : undefined}
                    data-head={c.head}
                  >
                    <div>{c.cell(row)}</div>
                  </Cell>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
      {left > 0 && (
        <button
          type="button"
          onClick={() => {
            shown.value += pageRows;
          }}
        >
          Show {Math.min(left, pageRows)} more of {left}
        </button>
      )}
    </div>
  );
}
