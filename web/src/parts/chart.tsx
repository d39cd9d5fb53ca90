import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { type Box, greatest, nearest, path, timeTicks, valueTicks, x, y } from "../core/plot.js";
import type { Columns } from "../core/series.js";
import { clockMinutes } from "../shell/time.js";

interface Props {
  title: string;
  lines: readonly string[];
  columns: Columns;
  format(n: number | null): string;
  /** Seconds that the chart is wide, once there is so much to show. */
  keepS: number;
  /** Whether the values are counts, without fractions. */
  whole?: boolean;
  /** What stands there until something is known. */
  empty?: string;
}

const [left, right, upper, lower] = [58, 8, 8, 20]; // pixels around the plot
const height = 140;

/** Seconds that a chart is wide at first. */
const leastS = 120;

/** There are so many colours. */
const colours = 6;
export const colour = (i: number): string => `chart-${(i % colours) + 1}`;

/** Lines over time, with the latest values (or those under the pointer) as text above them. */
export function Chart({
  title,
  lines,
  columns,
  format,
  keepS,
  whole,
  empty = "Nothing has been measured yet.",
}: Props) {
  const room = useRef<HTMLDivElement>(null);
  const width = useSignal(300);
  const pointed = useSignal<number | undefined>(undefined);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => {
      width.value = Math.max(120, Math.floor(entry!.contentRect.width));
    });
    watch.observe(room.current!);
    return () => watch.disconnect();
  }, []);

  const toS = columns[0].at(-1) ?? 0;
  const fromS = Math.max(toS - keepS, Math.min(columns[0][0] ?? 0, toS - leastS));
  const ticks = valueTicks(greatest(columns), 4, whole ? 1 : 0);
  const box: Box = { width: width.value - left - right, height, fromS, toS, top: ticks.at(-1)! };
  const at = pointed.value === undefined ? undefined : nearest(columns, box, pointed.value);
  const value = (i: number) => columns[i + 1]?.at(at ?? -1) ?? null;
  const known = lines.some((_, i) => columns[i + 1]?.some((v) => v !== null));
  return (
    <figure class="chart" aria-label={`${title}: ${lines.map((line, i) => `${line} ${format(value(i))}`).join(", ")}`}>
      <figcaption>
        <b>{title}</b>
        {lines.map((line, i) => (
          <span key={line} class="line">
            <i class={colour(i)} />
            {line} <span class="figure">{format(value(i))}</span>
          </span>
        ))}
      </figcaption>
      <div ref={room}>
        <svg
          width={width.value}
          height={height + upper + lower}
          aria-hidden="true"
          onPointerMove={(e) => {
            pointed.value = e.clientX - e.currentTarget.getBoundingClientRect().left - left;
          }}
          onPointerLeave={() => {
            pointed.value = undefined;
          }}
        >
          <g transform={`translate(${left} ${upper})`}>
            {ticks.map((v) => (
              <g key={v}>
                <line class="grid" x1="0" x2={box.width} y1={y(box, v)} y2={y(box, v)} />
                <text class="tick" x="-8" y={y(box, v) + 4} text-anchor="end">
                  {format(v)}
                </text>
              </g>
            ))}
            {toS > 0 &&
              timeTicks(fromS, toS - (18 * (toS - fromS)) / box.width, Math.max(2, Math.floor(box.width / 80))).map(
                (t) => (
                  <text key={t} class="tick" x={x(box, t)} y={height + 15} text-anchor="middle">
                    {clockMinutes(t * 1000)}
                  </text>
                ),
              )}
            {lines.map((line, i) => (
              <path key={line} class={colour(i)} d={path(columns, i + 1, box)} />
            ))}
            {at !== undefined && (
              <line class="cursor" x1={x(box, columns[0][at]!)} x2={x(box, columns[0][at]!)} y1="0" y2={height} />
            )}
          </g>
        </svg>
      </div>
      {!known && <p class="quiet">{empty}</p>}
    </figure>
  );
}
