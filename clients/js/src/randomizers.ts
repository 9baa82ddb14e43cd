/** One report about one code, drawn exactly by its law; the words are read in the order of the Python client. */
import { laplace, rateOf } from './noise.js';
import type { Words } from './words.js';

const TOTAL = 1n << 63n; // what the weights of a law sum to

export type RandomizerRecipe =
  | { kind: 'k-ary'; options: number; keep: string; other: string }
  | { kind: 'rows'; weights: readonly (readonly string[])[] }
  | { kind: 'geometric'; spans: readonly number[]; rate: readonly [string, string] };

/** Reports on codes 0.., one each. */
export function randomized(recipe: RandomizerRecipe, codes: readonly number[], words: Words): number[] {
  switch (recipe.kind) {
    case 'k-ary':
      return kary(recipe, codes, words);
    case 'rows':
      return fromRows(recipe.weights, codes, words);
    case 'geometric':
      return geometricOnAxes(recipe, codes, words);
    default:
      throw new RangeError('this client does not know how reports of this collection are drawn; use a newer one');
  }
}

/** The first `keep` of 2^63 numbers keep the code, then `other` numbers stand for each other option. Half a word nearly always tells. */
function kary(recipe: Extract<RandomizerRecipe, { kind: 'k-ary' }>, codes: readonly number[], words: Words): number[] {
  const keep = BigInt(recipe.keep);
  const other = BigInt(recipe.other);
  if (other < 1n || keep <= other || keep + other * BigInt(recipe.options - 1) !== TOTAL) throw new RangeError('the weights of a k-ary response must sum to 2^63');
  const option = (number: bigint) => (number < keep ? -1 : Number((number - keep) / other));
  const halves: bigint[] = [];
  for (let pair = 0; pair < codes.length; pair += 2) {
    const word = words.next();
    halves.push(word & 0xffffffffn, word >> 32n);
  }
  return codes.map((code, place) => {
    const first = halves[place]! << 31n;
    let drawn = option(first);
    if (drawn !== option(first + (1n << 31n))) drawn = option(first + (words.next() >> 33n));
    return drawn < 0 ? code : drawn + Number(drawn >= code);
  });
}

/** The number of partial sums that a random number of 63 bits reaches: all of them are compared, and no branch depends on the number. */
function fromRows(weights: readonly (readonly string[])[], codes: readonly number[], words: Words): number[] {
  return codes.map((code) => {
    const row = weights[code]!;
    const high = new Uint32Array(row.length);
    const low = new Uint32Array(row.length);
    let sum = 0n;
    row.forEach((weight, place) => {
      sum += BigInt(weight);
      high[place] = Number(sum >> 32n);
      low[place] = Number(sum & 0xffffffffn);
    });
    if (sum !== TOTAL) throw new RangeError('the weights of a row must sum to 2^63');
    const number = words.next() >> 1n;
    const upper = Number(number >> 32n);
    const lower = Number(number & 0xffffffffn);
    let count = 0;
    for (let place = 0; place < row.length; place++) {
      count += Number(high[place]! < upper) | (Number(high[place] === upper) & Number(low[place]! <= lower));
    }
    return count;
  });
}

/** Discrete Laplace noise on each axis, clamped to it; a cell's code is row * width + column. */
function geometricOnAxes(recipe: Extract<RandomizerRecipe, { kind: 'geometric' }>, codes: readonly number[], words: Words): number[] {
  const rate = rateOf(recipe.rate);
  const drawn = codes.map(() => 0);
  let below = 1;
  for (const span of recipe.spans) {
    codes.forEach((code, place) => {
      const noisy = BigInt(Math.floor(code / below) % (span + 1)) + laplace(words, rate);
      drawn[place]! += below * Number(noisy < 0n ? 0n : noisy > BigInt(span) ? BigInt(span) : noisy);
    });
    below *= span + 1;
  }
  return drawn;
}
