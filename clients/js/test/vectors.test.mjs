import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import test from 'node:test';
import { differences } from './compared.mjs';

const vectors = JSON.parse(await readFile(new URL('vectors.json', import.meta.url), 'utf8'));

test('the same words make the same draws, messages and places as in Python', () => {
  const { counts, different } = differences(vectors);
  assert.deepEqual(different.slice(0, 3), []);
  for (const name of ['rows', 'k-ary', 'rank', 'place']) assert.ok(counts[name] > 90, name);
  assert.ok(Object.keys(counts).length > 25);
});
