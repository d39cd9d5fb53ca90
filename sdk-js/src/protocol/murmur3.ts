const encoder = new TextEncoder();

/** murmur3-32 with seed 0 of a key's UTF-8 bytes: what decides its partition. */
export function keyHash(key: string): number {
  const bytes = encoder.encode(key);
  let h = 0;
  let k = 0; // four bytes, the first one lowest; in the end what is left
  bytes.forEach((byte, i) => {
    k |= byte << (8 * (i & 3));
    if ((i & 3) < 3) return;
    h = Math.imul(rotated(h ^ scramble(k), 13), 5) + 0xe6546b64;
    k = 0;
  });
  h ^= scramble(k) ^ bytes.length;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

const scramble = (k: number): number => Math.imul(rotated(Math.imul(k, 0xcc9e2d51), 15), 0x1b873593);

const rotated = (x: number, bits: number): number => (x << bits) | (x >>> (32 - bits));
