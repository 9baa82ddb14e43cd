/** A number, or a vector of them, as residues that add up to it: all but one of them exactly uniform. */
import type { Words } from './words.js';

export function modularShares(value: bigint, modulus: bigint, count: number, words: Words): bigint[] {
  const shares = words.residues(count - 1, modulus);
  const sum = shares.reduce((total, share) => total + share, 0n);
  return [...shares, (((value - sum) % modulus) + modulus) % modulus];
}

export interface Packing {
  bits: number;
  /** How many coordinates are in a message; `width` is one more where a constant 0 is sent along as a check. */
  together: number;
  width: number;
  shares: number;
}

/** Group by group, `shares` elements of `width` residues modulo 2^bits that add up to the group. A word holds several residues. */
export function packedShares(values: readonly bigint[], { bits, together, width, shares }: Packing, words: Words): bigint[] {
  const mask = (1n << BigInt(bits)) - 1n;
  const each = Math.floor(64 / bits);
  const numbers: bigint[] = [];
  let word = 0n;
  let left = 0;
  for (let first = 0; first < values.length; first += together) {
    const rest = Array.from({ length: width }, (_, place) => (place < together ? (values[first + place] ?? 0n) : 0n));
    for (let share = 1; share < shares; share++) {
      for (let place = 0; place < width; place++) {
        if (left === 0) {
          word = words.next();
          left = each;
        }
        const residue = word & mask;
        word >>= BigInt(bits);
        left--;
        rest[place]! -= residue;
        numbers.push(residue);
      }
    }
    numbers.push(...rest.map((value) => value & mask));
  }
  return numbers;
}
