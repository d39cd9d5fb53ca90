import { signal } from "@preact/signals";
import { clock, type Zone } from "../core/format.js";

const storedAs = "tidewire-zone";

/** In which zone times are shown. */
export const zone = signal<Zone>(localStorage.getItem(storedAs) === "utc" ? "utc" : "local");

export function toggleZone(): void {
  zone.value = zone.value === "utc" ? "local" : "utc";
  localStorage.setItem(storedAs, zone.value);
}

/** Now, by the second: what shows ages reads it. */
export const now = signal(Date.now());
setInterval(() => {
  now.value = Date.now();
}, 1000);

export const shown = (iso: string): string => clock(iso, zone.value, now.peek());

/** The hour and minute of a time. */
export const clockMinutes = (ms: number): string => clock(new Date(ms).toISOString(), zone.value, ms).slice(0, 5);
