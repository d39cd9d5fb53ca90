import type { Value } from "../core/series.js";

const [width, height] = [80, 20];

/** A line as small as a word; the figure stands beside it as text. */
export function Spark({ values }: { values: readonly Value[] }) {
  if (values.length < 2) return null;
  const known = values.map((v) => v ?? 0);
  const top = Math.max(1, ...known);
  const step = width / Math.max(1, known.length - 1);
  const points = known
    .map((v, i) => `${(i * step).toFixed(1)},${(height - 1 - (v / top) * (height - 2)).toFixed(1)}`)
    .join(" ");
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true">
      <polyline points={points} />
    </svg>
  );
}
