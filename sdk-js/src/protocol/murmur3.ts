const encoder = new TextEncoder();

/** murmur3-32 with seed 0 of a key's UTF-8 bytes: what decides its partition. */
export function keyHash(key: string): number {
  const bytes = encoder.encode(key);
  const whole = bytes.length & ~3;
  let h = 0;
  for (let i = 0; i < whole; i += 4) {
    h ^= scramble(bytes[i]! | (bytes[i + 1]! << 8) | (bytes[i + 2]! << 16) | (bytes[i + 3]! << 24));
    h = Math.imul((h << 13) | (h >>> 19), 5) + 0xe6546b64;
  }
  let tail = 0;
  for (let i = bytes.length - 1; i >= whole; i--) tail = (tail << 8) | bytes[i]!;
  h ^= scramble(tail) ^ bytes.length;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

function scramble(k: number): number {
  k = Math.imul(k, 0xcc9e2d51);
  return Math.imul((k << 15) | (k >>> 17), 0x1b873593);
}
