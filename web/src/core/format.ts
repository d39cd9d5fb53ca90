// Numbers, sizes and times as text. One language, so that a figure reads the same
// everywhere it is quoted.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** What stands where the API says null: nothing is guessed. */
export const unknown = "–";

/** A count, exactly. */
export const count = (n: number | null | undefined): string => (n == null ? unknown : whole.format(n));

/** A count in at most five characters, for axes and narrow places. */
export function short(n: number): string {
  for (const [unit, letter] of [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
  ] as const) {
    if (Math.abs(n) >= unit) return tenth.format(n / unit) + letter;
  }
  return tenth.format(n);
}

/** A rate a second: with a tenth while it is small. */
export const rate = (n: number | null | undefined): string =>
  n == null ? unknown : n < 10 ? tenth.format(n) : whole.format(n);

const units = ["B", "KiB", "MiB", "GiB", "TiB"];

export function bytes(n: number | null | undefined): string {
  if (n == null) return unknown;
  let unit = 0;
  while (n >= 1024 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return `${unit === 0 || n >= 100 ? whole.format(n) : tenth.format(n)} ${units[unit]}`;
}

/** A latency, given in seconds. */
export function latency(seconds: number | null | undefined): string {
  if (seconds == null) return unknown;
  if (seconds < 0.001) return `${whole.format(seconds * 1e6)} µs`;
  if (seconds < 1) return `${tenth.format(seconds * 1e3)} ms`;
  return `${tenth.format(seconds)} s`;
}

const scale: Record<string, number> = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1e3, m: 6e4, h: 3.6e6 };

/** The milliseconds of a duration of the API, such as `1h2m3.5s`; undefined if it is none. */
export function milliseconds(text: string): number | undefined {
  if (!/^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+$/.test(text)) return text === "0" ? 0 : undefined;
  let sum = 0;
  for (const [, n, unit] of text.matchAll(/(\d+(?:\.\d+)?)(ns|us|µs|ms|s|m|h)/g)) sum += Number(n) * scale[unit!]!;
  return sum;
}

/** A span of time in its two greatest units. */
export function span(ms: number | null | undefined): string {
  if (ms == null || Number.isNaN(ms)) return unknown;
  const s = Math.max(0, Math.floor(ms / 1000));
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d > 0) return h > 0 ? `${d} d ${h} h` : `${d} d`;
  if (h > 0) return m > 0 ? `${h} h ${m} min` : `${h} h`;
  if (m > 0) return s % 60 > 0 ? `${m} min ${s % 60} s` : `${m} min`;
  return `${s} s`;
}

/** A duration of the API in words; 0 is for ever where it is a retention. */
export const duration = (text: string): string => span(milliseconds(text) ?? Number.NaN);

/** How long ago a time was. */
export const ago = (iso: string | null | undefined, nowMs: number): string =>
  iso ? span(nowMs - Date.parse(iso)) : unknown;

export type Zone = "local" | "utc";

const pad = (n: number, width = 2) => String(n).padStart(width, "0");

/** A time of day with milliseconds, and the date where it is another day than now's. */
export function clock(iso: string, zone: Zone, nowMs: number): string {
  const t = new Date(iso);
  if (Number.isNaN(t.getTime())) return iso;
  const parts = (d: Date) =>
    zone === "utc"
      ? ([
          d.getUTCFullYear(),
          d.getUTCMonth() + 1,
          d.getUTCDate(),
          d.getUTCHours(),
          d.getUTCMinutes(),
          d.getUTCSeconds(),
        ] as const)
      : ([d.getFullYear(), d.getMonth() + 1, d.getDate(), d.getHours(), d.getMinutes(), d.getSeconds()] as const);
  const [y, mo, d, h, mi, s] = parts(t);
  const now = parts(new Date(nowMs));
  const day = y === now[0] && mo === now[1] && d === now[2] ? "" : `${y}-${pad(mo)}-${pad(d)} `;
  return `${day}${pad(h)}:${pad(mi)}:${pad(s)}.${pad(t.getUTCMilliseconds(), 3)}`;
}

/** A noun with its number: `1 record`, `2 records`. */
export const several = (n: number, noun: string): string => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
