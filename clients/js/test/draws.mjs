// node draws.mjs REQUEST.json: what the client makes of the words of a file, for the Python tests to compare.
import { readFile } from 'node:fs/promises';
import { Noise } from '../dist/noise.js';
import { randomized } from '../dist/randomizers.js';
import { numbersOf, payloadsOf } from '../dist/report.js';
import { bytesOf, hexOf, Sealer } from '../dist/sealing.js';
import { modularShares } from '../dist/shares.js';
import { Words } from '../dist/words.js';
import { entry, Known } from './compared.mjs';
import { opened, suite } from './served.mjs';

const asked = JSON.parse(await readFile(process.argv[2], 'utf8'));
const known = async (file) => new Known(hexOf(await readFile(file)));

const made = {
  /** Many draws of one noise. */
  async noise({ noise, columns, words }) {
    const values = new Array(columns).fill(0n);
    new Noise(noise).addTo(values, [...values.keys()], await known(words));
    return values.map(String);
  },
  /** Many reports of one randomizer, on codes. */
  async randomized({ randomizer, codes, words }) {
    return randomized(randomizer, codes, await known(words));
  },
  async shares({ values, modulus, messages, words }) {
    const source = await known(words);
    return values.map((value) => modularShares(BigInt(value), BigInt(modulus), messages, source).map(String));
  },
  /** Reports on values, with words of the system's. */
  async reports({ recipe, values }) {
    return values.map((value) => payloadsOf(recipe.payload, numbersOf(recipe, entry(recipe.input, value), new Words())).map(hexOf));
  },
  /** Payloads sealed for keys in hexadecimal digits. */
  async sealed({ digest, keys, reports, ticket, piles }) {
    const sealer = await Sealer.of(bytesOf(digest), keys.map(bytesOf), piles);
    return Promise.all(reports.map(async (payloads) => hexOf(await sealer.report(await sealer.boxes(payloads.map(bytesOf)), bytesOf(ticket)))));
  },
  /** What others sealed, opened with private keys. */
  async opened({ digest, keys, terms, reports }) {
    const pairs = keys.map(async ([private_, public_]) => {
      const part = (text) => Buffer.from(text, 'hex').toString('base64url');
      const key = { kty: 'OKP', crv: 'X25519', d: part(private_), x: part(public_), key_ops: ['deriveBits'] };
      return { privateKey: await suite.kem.importKey('jwk', key, false) };
    });
    const all = { digest, terms, keys: await Promise.all(pairs) };
    return Promise.all(reports.map((report) => opened(bytesOf(report), all)));
  },
};

console.log(JSON.stringify(await Promise.all(asked.map(async ({ make, ...more }) => made[make](more)))));
