/** A UUID of version 7: `crypto.randomUUID` would need a secure context. */
export function uuidv7(now: number): string {
  const digits = [...Math.floor(now).toString(16).padStart(12, "0")];
  for (const byte of crypto.getRandomValues(new Uint8Array(18))) digits.push((byte & 15).toString(16));
  return "xxxxxxxx-xxxx-7xxx-8xxx-xxxxxxxxxxxx".replace(/x/g, () => digits.shift()!);
}
