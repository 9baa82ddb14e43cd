// What the client makes of the words in vectors.json, compared with what the Python client made of them; the same in Node and in browsers.
import { cellOf, codesOf } from '../dist/inputs.js';
import { digitsOf, laplace, Noise, rank, rateOf } from '../dist/noise.js';
import { randomized } from '../dist/randomizers.js';
import { numbersOf, payloadsOf } from '../dist/report.js';
import { ADDED, bytesOf, hexOf } from '../dist/sealing.js';
import { modularShares } from '../dist/shares.js';
import { Words } from '../dist/words.js';

/** Words that are known. Reading farther than they go is an error, and so is leaving some. */
export class Known extends Words {
  #words;
  #at = 0;

  constructor(hexadecimal) {
    super();
    const bytes = bytesOf(hexadecimal);
    this.#words = new BigUint64Array(bytes.buffer, 0, bytes.length / 8);
  }

  next() {
    if (this.#at === this.#words.length) throw new Error('more words were read than by the Python client');
    return this.#words[this.#at++];
  }

  get left() {
    return this.#words.length - this.#at;
  }
}

export function* compared(vectors) {
  const with_ = (words, act) => {
    const known = new Known(words);
    const made = act(known);
    return known.left ? `${known.left} words are left` : made;
  };
  for (const { modulus, count, words, residues } of vectors.residues) {
    yield ['residues', with_(words, (known) => known.residues(count, BigInt(modulus)).map(String)), residues];
  }
  for (const { bound, words, number } of vectors.below) yield ['below', with_(words, (known) => String(known.below(BigInt(bound)))), number];
  for (const { randomizer, cases } of [vectors.rows, ...vectors.kary]) {
    for (const [code, words, report] of cases) yield [randomizer.kind, with_(words, (known) => randomized(randomizer, [code], known)[0]), report];
  }
  for (const { rows, cases } of vectors.ranks) {
    const digits = rows.map(digitsOf);
    for (const [words, expected] of cases) yield ['rank', with_(words, (known) => rank(known, digits)), expected];
  }
  for (const { rate, words, values } of vectors.laplace) {
    yield ['laplace', with_(words, (known) => values.map(() => String(laplace(known, rateOf(rate))))), values];
  }
  for (const { noise, columns, words, values } of vectors.noise) {
    const drawn = with_(words, (known) => {
      const made = new Array(columns).fill(0n);
      new Noise(noise).addTo(made, [...made.keys()], known);
      return made.map(String);
    });
    yield ['noise', drawn, values];
  }
  for (const { modulus, value, words, shares } of vectors.shares) {
    yield ['shares', with_(words, (known) => modularShares(BigInt(value), BigInt(modulus), shares.length, known).map(String)), shares];
  }
  for (const { input, cases } of vectors.places) {
    for (const [latitude, longitude, column, row] of cases) {
      yield ['place', cellOf(input, { latitude: Number(latitude), longitude: Number(longitude) }), [column, row]];
    }
  }
  for (const { messages, payload, ticket, hops, size } of vectors.sealing) {
    yield ['length', ticket + messages * (payload + ADDED * hops) + ADDED, size];
  }
  for (const [name, { recipe, cases }] of Object.entries(vectors.reports)) {
    for (const { value, words, payloads } of cases) {
      const entered = entry(recipe.input, value);
      if (recipe.input.kind !== 'degrees') codesOf(recipe.input, entered);
      yield [`report: ${name}`, with_(words, (known) => payloadsOf(recipe.payload, numbersOf(recipe, entered, known)).map(hexOf)), payloads];
    }
  }
}

/** Cells are lists in Python, and have names here. */
export function entry(input, value) {
  if (input.kind === 'items') return value.map((item) => entry(input.of, item));
  if (input.kind === 'degrees') return { latitude: value[0], longitude: value[1] };
  if (input.kind === 'group') return { label: value[0], number: value[1] };
  if (input.kind === 'keys') return value.map(([label, number]) => ({ label, number }));
  if (input.kind === 'trip') return { from: value[0], to: value[1] };
  return input.kind === 'place' ? { column: value[0], row: value[1] } : value;
}

/** How many cases were compared, and those that differ. */
export function differences(vectors) {
  const counts = {};
  const different = [];
  for (const [name, made, expected] of compared(vectors)) {
    counts[name] = (counts[name] ?? 0) + 1;
    if (JSON.stringify(made) !== JSON.stringify(expected)) different.push([name, made, expected]);
  }
  return { counts, different };
}
