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

/** Two features of a group or key: x and top - x, or 1 and 2 x - top; or the one feature x of a column. */
export interface NumberFeatures {
  form: 'up-down' | 'count-sum' | 'columns';
  top: number;
}

/** All products of the features of both ends of a trip; an end has `width` of them. */
export interface TripFeatures {
  form: 'products';
  width: number;
  ends: readonly (readonly number[])[];
}

export interface VectorsRecipe extends Followed {
  protocol: 'noisy-vectors';
  floor: RandomizerRecipe | null;
  /** Of every point: coordinate, value, coordinate, value, ...; those of some forms are computed. */
  features: readonly (readonly number[])[] | NumberFeatures | TripFeatures;
  units: number;
  /** If averages are rounded at random: they are counted in units / divisor. */
  divisor?: number;
  most_items: number | null;
  noise: readonly (NoiseRecipe & { columns: readonly number[] })[];
  coordinates: number;
  bits: number;
  together: number;
  shares: number;
}

/** How the part of each pile follows from a code; of ramps it is the number of thresholds of a window at or above it. */
export type FamilyRecipe =
  | { kind: 'boxes'; width: number; across: number; shifts: readonly number[] }
  | { kind: 'ramps'; width: number; last: number }
  | { kind: 'levels'; rows: readonly (readonly number[])[] };

export interface PartsRecipe extends Followed {
  protocol: 'shuffler-noise';
  floor: RandomizerRecipe | null;
  items: number;
  drawn: boolean;
  family: FamilyRecipe;
}

export type FollowedRecipe = SumsRecipe | FrequenciesRecipe | VectorsRecipe | PartsRecipe;
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
    case 'shuffler-noise':
      return parts(recipe, codesOf(recipe.input, value), words);
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

/** As many of the items as are asked for, with replacement, or all of them. */
function drawn({ drawn, items }: { drawn: boolean; items: number }, codes: readonly number[], words: Words): readonly number[] {
  return drawn ? words.residues(items, BigInt(codes.length)).map((place) => codes[Number(place)]!) : codes;
}

function frequencies(recipe: FrequenciesRecipe, codes: readonly number[], words: Words): bigint[] {
  // in the order of her items a person's reports would tell more than which they are
  return randomized(recipe.randomizer, drawn(recipe, codes, words), words).sort((a, b) => a - b).map(BigInt);
}

function partsOf(family: FamilyRecipe, code: number): readonly number[] {
  switch (family.kind) {
    case 'boxes': {
      const { width, across, shifts } = family;
      const box = (place: number, shift: number) => Math.floor((place + shift) / width);
      return shifts.map((shift) => box(Math.floor(code / across), shift) * (box(across - 1, shift) + 1) + box(code % across, shift));
    }
    case 'ramps': {
      const { width, last } = family;
      return Array.from({ length: Math.ceil(last / width) }, (_, window) => Math.max(0, Math.min(width * (window + 1), last) - Math.max(width * window, code)));
    }
    default:
      return family.rows[code]!;
  }
}

/** The messages of the first pile first; the bit of a wide ramp is 1 with probability v / width. */
function parts(recipe: PartsRecipe, codes: readonly number[], words: Words): bigint[] {
  const { floor, family } = recipe;
  const held = drawn(recipe, codes, words);
  let rows = (floor ? randomized(floor, held, words) : held).map((code) => partsOf(family, code));
  if (family.kind === 'ramps' && family.width > 1) {
    const below = words.residues(rows.length * rows[0]!.length, BigInt(family.width));
    rows = rows.map((row, item) => row.map((v, pile) => Number(below[item * row.length + pile]! < v)));
  }
  return rows[0]!.flatMap((_, pile) => rows.map((row) => BigInt(row[pile]!)));
}

/** units * sum / size, each rounded at random by a whole number of its own below the size. */
function roundedAverages(sums: readonly bigint[], size: bigint, units: bigint, words: Words): bigint[] {
  const draws = words.residues(sums.length, size);
  return sums.map((sum, place) => (units * sum) / size + BigInt(draws[place]! < (units * sum) % size));
}

function featuresOf(features: VectorsRecipe['features'], code: number): readonly number[] {
  if (!('form' in features)) return features[code]!;
  if (features.form === 'products') {
    const { ends, width } = features;
    const [start, end] = [ends[Math.floor(code / ends.length)]!, ends[code % ends.length]!];
    const row: number[] = [];
    for (let one = 0; one < start.length; one += 2) {
      for (let other = 0; other < end.length; other += 2) row.push(start[one]! * width + end[other]!, start[one + 1]! * end[other + 1]!);
    }
    return row;
  }
  const { form, top } = features;
  const [group, x] = [Math.floor(code / (top + 1)), code % (top + 1)];
  if (form === 'columns') return [group, x];
  if (form !== 'up-down' && form !== 'count-sum') throw new RangeError('this client does not know the features of this collection; use a newer one');
  const [first, second] = form === 'up-down' ? [x, top - x] : [1, 2 * x - top];
  return [2 * group, first, 2 * group + 1, second];
}

function vectors(recipe: VectorsRecipe, codes: readonly number[], words: Words): bigint[] {
  const points = recipe.floor ? randomized(recipe.floor, codes, words) : codes;
  let values = new Array<bigint>(recipe.coordinates).fill(0n);
  for (const point of points) {
    const row = featuresOf(recipe.features, point);
    for (let place = 0; place < row.length; place += 2) values[row[place]!]! += BigInt(row[place + 1]!);
  }
  const size = recipe.input.kind === 'items' ? BigInt(codes.length) : 1n;
  if (recipe.divisor !== undefined) values = roundedAverages(values, size * BigInt(recipe.divisor), BigInt(recipe.units), words);
  if (recipe.most_items !== null) {
    // averages, in units, rounded to the nearest (halves up)
    values = values.map((sum) => (2n * BigInt(recipe.units) * sum + size) / (2n * size));
  }
  for (const law of recipe.noise) new Noise(law).addTo(values, law.columns, words);
  const { bits, together, shares, payload } = recipe;
  return packedShares(values, { bits, together, width: payload.width, shares }, words);
}

/** The messages as bytes of equal length: pile and numbers, little endian. They are sorted, or those of each pile if they do not name it: their order says nothing then. */
export function payloadsOf(recipe: PayloadRecipe, numbers: readonly bigint[]): Uint8Array<ArrayBuffer>[] {
  const { piles, each, pile, number, width } = recipe;
  if (numbers.length !== piles * each * width) throw new RangeError('a report of this collection has another number of messages');
  const rank = (message: number) => (pile ? 0 : Math.floor(message / each));
  const payloads = Array.from({ length: piles * each }, (_, message) => {
    const bytes = new Uint8Array(pile + number * width);
    const put = (value: bigint, start: number, size: number) => {
      for (let place = 0; place < size; place++) bytes[start + place] = Number((value >> BigInt(8 * place)) & 255n);
    };
    put(BigInt(Math.floor(message / each)), 0, pile);
    for (let place = 0; place < width; place++) put(numbers[message * width + place]!, pile + number * place, number);
    return { bytes, rank: rank(message) };
  });
  return payloads
    .sort((a, b) => {
      const place = a.bytes.findIndex((byte, at) => byte !== b.bytes[at]);
      return a.rank - b.rank || (place < 0 ? 0 : a.bytes[place]! - b.bytes[place]!);
    })
    .map(({ bytes }) => bytes);
}
