/** A UUID of version 7: `crypto.randomUUID` would need a secure context. */
export function uuidv7(now: number): string {
  const time = Math.floor(now).toString(16).padStart(12, "0");
  const random = Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => (b + 256).toString(16).slice(1)).join("");
  return `${time}7${random.slice(0, 3)}8${random.slice(3)}`.replace(/(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
