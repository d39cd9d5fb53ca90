/** Streets cross every 20 units, from 0 to 100 and from 0 to 60. */
export const block = 20;
export const width = 100;
export const height = 60;

/** Where a tram is. */
export interface Position {
  x: number;
  y: number;
  /** Counts the positions of a tram, so that whoever watches knows what is missing. */
  n: number;
  /** When its fleet went out; n begins anew then. */
  since: number;
}
