/** From a value to the messages of a report, by the recipe of a collection; see service/recipes.py for what stands in one. */
import { cellOf, codesOf, type InputRecipe, pointsOf, type Value } from './inputs.js';
import { Noise, type NoiseRecipe } from './noise.js';
import { randomized, type RandomizerRecipe } from './randomizers.js';
import { modularShares, packedShares } from './shares.js';
import type { Words } from './words.js';

export interface PayloadRecipe {
  piles: number;
  each: number;
  pile: number;
  number: number;
  width: number;
}

interface Followed {
  browser: true;
  input: InputRecipe;
  payload: PayloadRecipe;
}

export interface SumsRecipe extends Followed {
  protocol: 'sums';
  /** Of places in degrees both are text, because they may be larger than a number holds; each axis has a granularity of its own. */
  spans: readonly (number | string)[];
  granularity: number | readonly string[];
  noise: NoiseRecipe;
  modulus: string;
  shares: number;
}

export interface FrequenciesRecipe extends Followed {
  protocol: 'frequencies';
  items: number;
  drawn: boolean;
  randomizer: RandomizerRecipe;
}

export interface VectorsRecipe extends Followed {
  protocol: 'noisy-vectors';
  floor: RandomizerRecipe | null;
  /** Of every point: coordinate, value, coordinate, value, ... */
  features: readonly (readonly number[])[];
  units: number;
  most_items: number | null;
  noise: readonly (NoiseRecipe & { columns: readonly number[] })[];
  coordinates: number;
  bits: number;
  together: number;
  shares: number;
}

export type FollowedRecipe = SumsRecipe | FrequenciesRecipe | VectorsRecipe;
/** What cannot be followed says why. */
export type Recipe = FollowedRecipe | { protocol: string; browser: false; why: string };

/** The numbers of a report, randomized: the messages of the first pile first. */
export function numbersOf(recipe: FollowedRecipe, value: Value | readonly Value[], words: Words): bigint[] {
  switch (recipe.protocol) {
    case 'sums':
      return sums(recipe, value as Value, words);
    case 'frequencies':
      return frequencies(recipe, codesOf(recipe.input, value), words);
    case 'noisy-vectors':
      return vectors(recipe, codesOf(recipe.input, value), words);
    default:
      throw new RangeError('this client does not know how reports of this collection are made; use a newer one');
  }
}

/** floor(x / Q + U), U uniform: decided by a whole number below Q. */
function rounded(steps: bigint, granularity: bigint, words: Words): bigint {
  if (granularity === 1n) return steps;
  const up = words.residues(1, granularity)[0]! < steps % granularity;
  return steps / granularity + BigInt(up);
}

function stepsOf(input: InputRecipe, value: Value): bigint[] {
  if (input.kind === 'degrees') return pointsOf(input, value);
  return (input.kind === 'place' ? cellOf(input, value) : codesOf(input, value)).map(BigInt);
}

function sums(recipe: SumsRecipe, value: Value, words: Words): bigint[] {
  const { input, spans, granularity, modulus, shares } = recipe;
  const steps = stepsOf(input, value);
  if (steps.length !== spans.length) throw new RangeError('the recipe of this collection does not fit its question; do not take part');
  const noise = new Noise(recipe.noise);
  return spans.flatMap((span, axis) => {
    if (!(steps[axis]! >= 0n && steps[axis]! <= BigInt(span))) throw new RangeError('a value lies outside of what the noise is made for');
    const cell = [rounded(steps[axis]!, BigInt(typeof granularity === 'number' ? granularity : granularity[axis]!), words)];
    noise.addTo(cell, [0], words);
    return modularShares(cell[0]!, BigInt(modulus), shares, words);
  });
}

function frequencies(recipe: FrequenciesRecipe, codes: readonly number[], words: Words): bigint[] {
  const held = recipe.drawn ? words.residues(recipe.items, BigInt(codes.length)).map((place) => codes[Number(place)]!) : codes;
  // in the order of her items a person's reports would tell more than which they are
  return randomized(recipe.randomizer, held, words).sort((a, b) => a - b).map(BigInt);
}

function vectors(recipe: VectorsRecipe, codes: readonly number[], words: Words): bigint[] {
  const points = recipe.floor ? randomized(recipe.floor, codes, words) : codes;
  let values = new Array<bigint>(recipe.coordinates).fill(0n);
  for (const point of points) {
    const row = recipe.features[point]!;
    for (let place = 0; place < row.length; place += 2) values[row[place]!]! += BigInt(row[place + 1]!);
  }
  if (recipe.most_items !== null) {
    const size = BigInt(codes.length); // averages, in units, rounded to the nearest (halves up)
    values = values.map((sum) => (2n * BigInt(recipe.units) * sum + size) / (2n * size));
  }
  for (const law of recipe.noise) new Noise(law).addTo(values, law.columns, words);
  const { bits, together, shares, payload } = recipe;
  return packedShares(values, { bits, together, width: payload.width, shares }, words);
}

/** The messages as bytes of equal length, sorted: pile and numbers, little endian. Their order says nothing then. */
export function payloadsOf(recipe: PayloadRecipe, numbers: readonly bigint[]): Uint8Array<ArrayBuffer>[] {
  const { piles, each, pile, number, width } = recipe;
  if (numbers.length !== piles * each * width) throw new RangeError('a report of this collection has another number of messages');
  const payloads = Array.from({ length: piles * each }, (_, message) => {
    const bytes = new Uint8Array(pile + number * width);
    const put = (value: bigint, start: number, size: number) => {
      for (let place = 0; place < size; place++) bytes[start + place] = Number((value >> BigInt(8 * place)) & 255n);
    };
    put(BigInt(Math.floor(message / each)), 0, pile);
    for (let place = 0; place < width; place++) put(numbers[message * width + place]!, pile + number * place, number);
    return bytes;
  });
  return payloads.sort((a, b) => {
    const place = a.findIndex((byte, at) => byte !== b[at]);
    return place < 0 ? 0 : a[place]! - b[place]!;
  });
}
