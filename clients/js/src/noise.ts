/**
 * The exact noise of a report: rational rates, whole numbers, and digits of real numbers that random words are compared with.
 *
 * Everything reads the words in the order in which metricshuffle's noise/sampling.py reads them, so that the same words give the same
 * draws; the laws and their proofs are told there and in noise/jumps.py. Time depends on what is drawn.
 */
import type { Words } from './words.js';

/** The probability of a step of noise falls by e^-(above/under). */
export interface Rate {
  above: bigint;
  under: bigint;
}

/** Digits of 64 bits behind the point of a number in 0..1, the first one first. */
type Digits = readonly bigint[];

/** The noise of sums and vectors, Polya's law: `whole` discrete Laplace draws, and the jumps of the rest of its shape. */
export interface NoiseRecipe {
  whole: number;
  rate: readonly [string, string];
  jumps: { run: string; bits: readonly string[]; numbers: readonly string[]; blocks: readonly string[] } | null;
}

export function rateOf([above, under]: readonly [string, string]): Rate {
  const rate = { above: BigInt(above), under: BigInt(under) };
  if (rate.above < 1n || rate.under < 1n) throw new RangeError('a rate of noise must be above 0');
  return rate;
}

export function digitsOf(hexadecimal: string): Digits {
  if (!/^([0-9a-f]{16})+$/.test(hexadecimal)) throw new RangeError('digits of a probability must be words of 16 hexadecimal digits');
  return hexadecimal.match(/.{16}/g)!.map((word) => BigInt(`0x${word}`));
}

/** Happens with probability e^-(above/under), for above <= under (Canonne, Kamath and Steinke 2020). */
function expBernoulli(words: Words, above: bigint, under: bigint): boolean {
  let tries = 1n;
  for (; ; tries++) {
    if (above < under && words.below(under) >= above) break;
    if (tries > 1n && words.below(tries) !== 0n) break;
  }
  return tries % 2n === 1n;
}

/** K with P(K >= k) = e^(-k rate). */
function geometric(words: Words, { above, under }: Rate): bigint {
  let start = words.below(under);
  while (!expBernoulli(words, start, under)) start = words.below(under);
  let whole = 0n;
  while (expBernoulli(words, 1n, 1n)) whole++;
  return (start + under * whole) / above;
}

/** Z with P(Z = z) proportional to e^(-rate |z|): a sign and a size, drawn again where it is "minus zero". */
export function laplace(words: Words, rate: Rate): bigint {
  for (;;) {
    const negative = words.next() >> 63n === 1n;
    const size = geometric(words, rate);
    if (!negative || size !== 0n) return negative ? -size : size;
  }
}

/** How many of the falling numbers a uniform real number lies below: its digits are random words, as many as it takes to tell. */
export function rank(words: Words, rows: readonly Digits[]): number {
  const seen: bigint[] = [];
  for (const [place, row] of rows.entries()) {
    let digit = 0;
    for (; ; digit++) {
      if (digit === row.length) throw new Error('256 random bits were equal to those of a probability: the source of randomness is broken');
      if (digit === seen.length) seen.push(words.next());
      if (seen[digit] !== row[digit]) break;
    }
    if (seen[digit]! > row[digit]!) return place;
  }
  return rows.length;
}

/** K >= 1 with P(K = k) proportional to e^(-k rate) / k, by rejection from a staircase of blocks [2^i, 2^(i+1)) and a tail. */
function jump(words: Words, rate: Rate, blocks: readonly Digits[]): bigint {
  for (;;) {
    const block = rank(words, blocks);
    const least = 1n << BigInt(block);
    let more = 0n;
    if (block === blocks.length) more = geometric(words, rate);
    else if (block > 0) more = words.next() >> BigInt(64 - block);
    if (more === 0n) return least;
    if (words.below(least + more) >= least) continue;
    if (block === blocks.length || expBernoulli(words, rate.above * more, rate.under)) return least + more;
  }
}

interface Jumps {
  run: Digits;
  bits: Digits[];
  numbers: Digits[];
  blocks: Digits[];
}

/** The noise of some columns of a vector; what is drawn is added to them. */
export class Noise {
  readonly #whole: number;
  readonly #rate: Rate;
  readonly #jumps: Jumps | null;

  constructor(recipe: NoiseRecipe) {
    this.#whole = recipe.whole;
    this.#rate = rateOf(recipe.rate);
    const { jumps } = recipe;
    this.#jumps = jumps && {
      run: digitsOf(jumps.run),
      bits: jumps.bits.map(digitsOf),
      numbers: jumps.numbers.map(digitsOf),
      blocks: jumps.blocks.map(digitsOf),
    };
  }

  addTo(values: bigint[], columns: readonly number[], words: Words): void {
    for (let draw = 0; draw < this.#whole; draw++) {
      for (const column of columns) values[column]! += laplace(words, this.#rate);
    }
    if (this.#jumps) this.#addJumps(values, columns, words, this.#jumps);
  }

  /** One negative binomial is added to every column, then one subtracted: no place without a jump is visited. */
  #addJumps(values: bigint[], columns: readonly number[], words: Words, { run, bits, numbers, blocks }: Jumps): void {
    const end = 2 * columns.length;
    for (let place = 0; place < end; ) {
      if (rank(words, [run]) === 1) {
        place += 2 ** bits.length;
        continue;
      }
      bits.forEach((bit, level) => {
        place += rank(words, [bit]) * 2 ** level;
      });
      if (place >= end) return;
      const column = columns[place % columns.length]!;
      for (let left = 1 + rank(words, numbers); left > 0; left--) {
        const size = jump(words, this.#rate, blocks);
        values[column]! += place < columns.length ? size : -size;
      }
      place++;
    }
  }
}
