import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { Client, Collection, NotSent, ValueError, Words } from '../dist/index.js';
import { codesOf } from '../dist/inputs.js';
import { FolderOutbox } from '../dist/node.js';
import { bytesOf, Sealer } from '../dist/sealing.js';
import { opened, served, shuffler } from './served.mjs';

const vectors = JSON.parse(await readFile(new URL('vectors.json', import.meta.url), 'utf8'));
const numbers = vectors.reports['whole numbers'].recipe;

/** A shuffler that answers so, a collection of its own, and a client with an empty outbox. */
async function round(context, statuses, options = {}, recipe = numbers) {
  const server = await shuffler(...statuses);
  const folder = await mkdtemp(join(tmpdir(), 'outbox-'));
  context.after(async () => {
    server.close();
    await rm(folder, { recursive: true });
  });
  const made = await served(recipe, { url: server.url, ...options });
  const collection = await Collection.read(made.bytes, made.digest);
  const client = (more = {}) => new Client(collection, { outbox: new FolderOutbox(folder), patience: 20_000, ...more });
  return { ...server, made, collection, folder, client };
}

/** The files of an outbox that hold something: one for each report. */
async function kept(folder) {
  const texts = await Promise.all((await readdir(folder)).map((name) => readFile(join(folder, name), 'utf8')));
  return texts.filter(Boolean).map((text) => JSON.parse(text));
}

test('a report is sent, opens layer by layer, and adds up to a number near the answer', async (context) => {
  for (const hops of [1, 2, 3]) {
    const { client, posts, made } = await round(context, [204], { hops });
    await client().submit(480);
    assert.equal(posts.length, 1);
    assert.equal(posts[0].url, `/v1/collections/${made.digest}/reports`);
    assert.equal(posts[0].headers['content-type'], 'application/octet-stream');
    const { payloads } = await opened(bytesOf(posts[0].body), made);
    assert.deepEqual(payloads, [...payloads].sort());
    const total = payloads.reduce((sum, text) => sum + Buffer.from(text, 'hex').readBigUInt64LE(1), 0n) % BigInt(numbers.modulus);
    const centred = total > 60_000n ? total - BigInt(numbers.modulus) : total;
    assert.ok(centred > 500n - 2000n && centred < 500n + 2000n, `${centred}`); // 480 is 500 steps from -20
  }
});

test('other bytes than those that were pinned are not even read', async () => {
  const { bytes, digest } = await served(numbers);
  await Collection.read(bytes, digest);
  const other = bytes.slice();
  other[bytes.length - 2] ^= 1;
  await assert.rejects(Collection.read(other, digest), /digests differ/);
  await assert.rejects(Collection.read(new TextEncoder().encode('{'), digest), /digests differ/);
});

test('what is no collection, or one of another kind, is refused', async () => {
  const changed = async (change) => {
    const { bytes, digest } = await served(numbers, change);
    return Collection.read(bytes, digest);
  };
  await assert.rejects(changed({ format: 'metricshuffle-collection/2' }), /another kind/);
  await assert.rejects(changed({ suite: 'none' }), /another kind/);
  await assert.rejects(changed({ task: 'no task' }), /cannot be read/);
  await assert.rejects(changed({ messages: 9 }), /does not fit/);
  await assert.rejects(changed({ payload: 10 }), /does not fit/);
  await assert.rejects(changed({ ticket: 8 }), /is invalid/);
});

test('a collection that a browser cannot follow says why', async (context) => {
  const { client, posts } = await round(context, [204], {}, { protocol: 'sums', browser: false, why: 'Too much.' });
  await assert.rejects(client().submit(1), (wrong) => wrong instanceof NotSent && /Too much\./.test(wrong.message) && !wrong.again);
  assert.equal(posts.length, 0);
});

test('values that are not asked for are refused, and nothing is kept', async (context) => {
  const { client, folder, posts } = await round(context, [204]);
  for (const value of [-21, 981, 0.5, NaN, '7', [7], undefined, { column: 1, row: 1 }]) {
    await assert.rejects(client().submit(value), ValueError, `${value}`);
  }
  assert.deepEqual(await readdir(folder), []);
  assert.equal(posts.length, 0);
});

test('records and trips that are not asked for are refused in a sentence', () => {
  const input = (name) => vectors.reports[name].recipe.input;
  const [row, set, keys, trip] = ['means of whole columns', 'sets', 'keys with numbers', 'flows'].map(input);
  const labels = set.label.labels;
  for (const [recipe, values, words] of [
    [row, [[1], [1, 2, 3], []], /^Enter 2 numbers\.$/],
    [row, [[1, 41], [1, NaN], [1, '2'], [1, undefined]], /^size: Enter a number from -5 to 40\.$/],
    [row, [[0.5, 2]], /^age: Enter a whole number\.$/],
    [set, [['tea'], [1], [null]], /^Choose one of the labels\.$/],
    [set, [labels], /^Choose up to 3 different ones\.$/],
    [keys, [[labels[0], labels[0]].map((label) => ({ label, number: 1 })), labels.map((label) => ({ label, number: 1 }))], /^Choose up to 2 different ones\.$/],
    [keys, [[labels[0]], [{ label: labels[0], number: 3 }], [{ label: labels[0] }]], /: Enter a number from 0 to 2 h\.$/],
    [trip, [{ from: 'S0' }, { from: 'S0', to: 'x' }, 'S0', undefined, ['S0', 'S1']], /^Choose one of the labels\.$/],
  ]) {
    for (const value of values) assert.throws(() => codesOf(recipe, value), (wrong) => wrong instanceof ValueError && words.test(wrong.message), JSON.stringify(value));
  }
  for (const recipe of [row, set, keys]) assert.throws(() => codesOf(recipe, labels[0]), { message: 'Enter a list.' });
  assert.deepEqual(codesOf(set, [labels[2], labels[0], labels[2]]), [5, 1]);
  assert.deepEqual(codesOf(keys, []), []);
});

test('the same bytes are sent until they are stored: 503, no answer, 429, 408', async (context) => {
  const { client, posts, folder } = await round(context, [503, 0, 429, 408, 204]);
  const begun = Date.now();
  await client().submit(7);
  assert.equal(posts.length, 5);
  assert.equal(new Set(posts.map(({ body }) => body)).size, 1);
  assert.ok(Date.now() - begun > 1500); // it waits, and as long as it is told to
  assert.equal(posts.length, 5);
  assert.deepEqual((await kept(folder)).map(({ state, report, boxes }) => [state, report, boxes]), [['sent', null, null]]);
});

test('what could not be delivered waits, and is not randomized again', async (context) => {
  const { client, posts } = await round(context, [503, 503, 204]);
  const hasty = { patience: 0 };
  await assert.rejects(client(hasty).submit(7), (wrong) => wrong instanceof NotSent && wrong.again && wrong.status === 503);
  await assert.rejects(client(hasty).submit(8), NotSent);
  const receipt = await client().submit(9);
  assert.equal(receipt.fresh, false);
  assert.match(receipt.sentence, /made before is stored\. The value given now was not used/);
  assert.equal(posts.length, 3);
  assert.equal(new Set(posts.map(({ body }) => body)).size, 1);
});

test('refusals are sentences, and say whether to try again', async (context) => {
  for (const [status, words, again] of [[410, /not known/, false], [422, /could not open/, false], [404, /refused the report \(404\)/, false], [409, /used for another/, false], [418, /418/, false]]) {
    const { client, posts } = await round(context, [status]);
    await assert.rejects(client().submit(7), (wrong) => wrong instanceof NotSent && words.test(wrong.message) && wrong.again === again && wrong.status === status);
    assert.equal(posts.length, 1);
  }
});

test('another ticket seals the same boxes again', async (context) => {
  const { client, posts, made } = await round(context, [403, 204], { ticket: 16 });
  const person = client();
  await assert.rejects(person.submit(7, 'no ticket'), /A ticket is 32/);
  assert.equal(posts.length, 0);
  await assert.rejects(person.submit(7, '11'.repeat(16)), (wrong) => wrong instanceof NotSent && wrong.again && wrong.status === 403);
  await person.changeTicket(` ${'AB'.repeat(16)}\n`);
  await person.send();
  const [first, second] = await Promise.all(posts.map(({ body }) => opened(bytesOf(body), made)));
  assert.deepEqual([first.ticket, second.ticket], ['11'.repeat(16), 'ab'.repeat(16)]);
  assert.deepEqual(first.payloads, second.payloads);
  assert.notEqual(posts[0].body, posts[1].body);
});

test('another collection of the same task and round is refused, another user or round is not', async (context) => {
  const { client, url, posts, folder } = await round(context, [204]);
  await client().submit(7);
  const other = async (options, change = {}) => {
    const made = await served(numbers, { url, ...change });
    return new Client(await Collection.read(made.bytes, made.digest), { outbox: new FolderOutbox(folder), ...options });
  };
  await assert.rejects((await other({})).submit(7), /another collection of the same question/);
  await (await other({ user: 'somebody else' })).submit(7);
  await (await other({}, { round: 2 })).submit(7);
  assert.equal(posts.length, 3);
});

test('another value after a report was stored: nothing is sent, and that is said', async (context) => {
  const { client, posts } = await round(context, [204]);
  assert.deepEqual(await client().submit(71), { fresh: true, sentence: 'The report is stored.' });
  for (const value of [99, 71]) {
    await assert.rejects(
      client().submit(value),
      (wrong) => wrong instanceof NotSent && !wrong.again && /^Nothing was sent now: .* was stored on .*20\d\d/.test(wrong.message) && /`user`/.test(wrong.message),
    );
  }
  assert.equal(posts.length, 1);
  assert.equal((await client({ user: 'somebody else' }).submit(99)).fresh, true);
});

test('nothing is drawn for a collection that takes no reports', async (context) => {
  const { client, posts, folder, close } = await round(context, [204]);
  const untouched = new Words(() => assert.fail('noise was drawn'));
  for (const [phase, words] of [['not open yet', /is not open yet\./], ['closed', /is closed\./], ['aborted', /is aborted \(too few\)\./], ['gone', /is gone\./]]) {
    posts.state = { phase, reason: phase === 'aborted' ? 'too few' : '' };
    await assert.rejects(client().prepare(7, '', untouched), (wrong) => wrong instanceof NotSent && !wrong.again && words.test(wrong.message) && /Nothing is drawn/.test(wrong.message));
  }
  posts.state = undefined; // 404
  await assert.rejects(client().prepare(7, '', untouched), /is gone\./);
  posts.state = { phase: 'something else' };
  await assert.rejects(client().prepare(7, '', untouched), (wrong) => wrong instanceof NotSent && wrong.again && /cannot be asked/.test(wrong.message));
  close();
  await assert.rejects(client({ ask: () => Promise.reject(new TypeError('no network')) }).prepare(7, '', untouched), /cannot be asked/);
  assert.deepEqual([await readdir(folder), posts.length], [[], 0]);
});

test('declined while another process waits for its moment: nothing is sent', async (context) => {
  const { client, posts } = await round(context, [204], { delay: 2 });
  const sender = client();
  await sender.prepare(7, '', new Words((bytes) => bytes.fill(170))); // 2/3 of the delay
  const sending = sender.send();
  assert.equal(await client().decline(), true);
  await assert.rejects(sending, (wrong) => wrong instanceof NotSent && /declined on .*: nothing was sent\./.test(wrong.message));
  assert.equal(posts.length, 0);
});

test('declined while it is sent, or after the shuffler was away: it may have been sent, and is not sent again', async (context) => {
  const { client, posts, folder } = await round(context, [503, 204]);
  const sender = client({ ask: async (...request) => {
    const answer = await fetch(...request);
    if (request[1].method === 'POST') assert.equal(await client().decline(), false);
    return answer;
  } });
  await assert.rejects(sender.submit(7), (wrong) => wrong instanceof NotSent && !wrong.again && /may have been sent before that, and is not sent again/.test(wrong.message));
  assert.equal(posts.length, 1);
  await assert.rejects(client().submit(8), /It was declined .* may have been sent/);
  assert.equal(await client().decline(), false);
  const away = client({ user: 'away', patience: 0, ask: (url, request) => (request.method === 'POST' ? Promise.reject(new TypeError('away')) : fetch(url, request)) });
  await assert.rejects(away.submit(7), (wrong) => wrong instanceof NotSent && wrong.again);
  assert.equal(await client({ user: 'away' }).decline(), false);
  await assert.rejects(client({ user: 'away' }).send(), /may have been sent/);
  assert.equal(posts.length, 1);
  assert.ok((await kept(folder)).every(({ state, report }) => state === 'declined' && report === null));
});

test('an answer that comes after it was declined is the truth', async (context) => {
  const { client, posts } = await round(context, [204]);
  const sender = client({ ask: async (...request) => {
    const answer = await fetch(...request);
    if (request[1].method === 'POST') await client().decline();
    return answer;
  } });
  await sender.submit(7);
  assert.equal((await client().entry()).state, 'sent');
  await assert.rejects(client().decline(), /sent already/);
  assert.equal(posts.length, 1);
});

test('entries of older clients are read, and nothing is claimed that they did not note', async (context) => {
  const { client, posts, folder, collection } = await round(context, [204]);
  const old = async (user, state, report) => {
    const { key } = client({ user });
    const name = `${(await import('node:crypto')).createHash('sha256').update(key).digest('hex')}.json`;
    await writeFile(join(folder, name), JSON.stringify({ collection: collection.digest, state, report, boxes: null, due: 0 }));
    return client({ user });
  };
  const bytes = Buffer.alloc(collection.reportSize, 7);
  const waiting = await old('a', 'waiting', bytes.toString('base64'));
  assert.equal((await waiting.entry()).state, 'sending');
  assert.equal((await waiting.submit(7)).fresh, false);
  assert.equal(posts[0].body, bytes.toString('hex'));
  assert.equal(await (await old('b', 'waiting', bytes.toString('base64'))).decline(), false);
  await assert.rejects((await old('c', 'sent', null)).submit(7), /stored before; each person/);
  assert.equal(await (await old('d', 'declined', null)).decline(), false);
  assert.equal(posts.length, 1);
});

test('what was declined is not sent, and no second report is drawn', async (context) => {
  const { client, posts } = await round(context, [204]);
  const person = client();
  assert.equal((await person.prepare(7)).payloads.length, 10);
  const untouched = new Words(() => assert.fail('noise was drawn again'));
  assert.equal(await person.prepare(7, '', untouched), null);
  assert.equal(await person.decline(), true);
  await assert.rejects(person.submit(7), /declined on .*: nothing was sent/);
  await assert.rejects(client({ user: 'nobody' }).send(), /no report to be sent/);
  assert.equal(posts.length, 0);
  const sender = client({ user: 'sender' });
  await sender.submit(7);
  await assert.rejects(sender.decline(), /sent already/);
  assert.equal((await sender.entry()).state, 'sent');
});

test('a random delay is kept to, and kept', async (context) => {
  const { client, posts } = await round(context, [204], { delay: 3600 });
  const dues = [];
  for (let person = 0; person < 8; person++) {
    const made = client({ user: `${person}` });
    await made.prepare(7);
    dues.push((await made.entry()).due - Date.now());
  }
  assert.ok(dues.every((due) => due > -1000 && due <= 3_600_000));
  assert.equal(new Set(dues.map((due) => Math.round(due / 1000))).size > 5, true);
  assert.equal(posts.length, 0);
});

test('of many entries at once one is first, and no change is lost', async (context) => {
  const { folder } = await round(context, [204]);
  const entry = (byte) => ({ collection: 'c', state: 'made', report: Uint8Array.of(byte), boxes: null, due: 0 });
  const add = (byte) => new FolderOutbox(folder).update('key', (found) => (found ? undefined : entry(byte)));
  const added = await Promise.all(Array.from({ length: 40 }, (_, byte) => add(byte)));
  const [first] = added[0].report;
  assert.deepEqual(new Set(added.map(({ report }) => report[0])), new Set([first]));
  assert.equal((await add(99)).report[0], first);
  assert.equal((await readdir(folder)).length, 1);
  await Promise.all(Array.from({ length: 25 }, () => new FolderOutbox(folder).update('key', (found) => ({ ...found, due: found.due + 1 }))));
  assert.equal((await new FolderOutbox(folder).update('key', () => undefined)).due, 25);
  assert.deepEqual((await kept(folder)).map(({ due }) => due), [25]);
});

test('of many at once on one outbox one is first, and all send its report', async (context) => {
  const { client, posts } = await round(context, [204]);
  const told = await Promise.allSettled(Array.from({ length: 16 }, (_, person) => client().submit(person)));
  assert.equal(new Set(posts.map(({ body }) => body)).size, 1);
  assert.equal(told.filter(({ value }) => value?.fresh).length, 1);
  for (const { value, reason } of told) assert.match(value?.sentence ?? reason.message, /is stored|Nothing was sent now/);
});

test('a process that is killed leaves its report whole in the outbox or none', async (context) => {
  const { client, folder, posts, made, url } = await round(context, [503, 503, 503, 204]);
  const code = `
    import { Client, Collection } from '${new URL('../dist/index.js', import.meta.url)}';
    import { FolderOutbox } from '${new URL('../dist/node.js', import.meta.url)}';
    const made = await Collection.read(new Uint8Array(Buffer.from('${Buffer.from(made.bytes).toString('base64')}', 'base64')), '${made.digest}');
    await new Client(made, { outbox: new FolderOutbox('${folder}') }).submit(${7});`;
  for (let kill = 1; kill <= 3; kill++) {
    const process_ = spawn(process.execPath, ['--no-warnings', '--input-type=module', '-e', code], { stdio: 'ignore' });
    const ended = new Promise((done) => process_.on('exit', done));
    for (let wait = 0; posts.length < kill && wait < 600; wait++) await new Promise((done) => setTimeout(done, 50));
    process_.kill('SIGKILL');
    await ended;
    assert.equal(posts.length, kill, url);
  }
  await client().submit(8);
  assert.equal(posts.length, 4);
  assert.equal(new Set(posts.map(({ body }) => body)).size, 1);
  assert.equal((await kept(folder)).length, 1);
});

test('keys that keep no secret seal nothing', async () => {
  for (const bad of ['00'.repeat(32), `01${'00'.repeat(31)}`]) {
    const sealer = await Sealer.of(new Uint8Array(32), [bytesOf(bad), bytesOf(bad)]);
    await assert.rejects(sealer.boxes([new Uint8Array(9)]));
  }
  await assert.rejects(Sealer.of(new Uint8Array(32), [new Uint8Array(31)]), /cannot seal/);
});

test('what a report can reveal is written with it, stays when it is declined, and asks at limits', async (context) => {
  const folder = await mkdtemp(join(tmpdir(), 'outbox-'));
  context.after(() => rm(folder, { recursive: true }));
  const guarantee = (epsilon) => ({ epsilon, delta: 0, distance: 5, unit: 'kcal', shape: 'flat', protects: "one user's items", between: 'values', trust: { honest_reports: 30 } });
  const task = JSON.stringify({ digest: 'a'.repeat(64), rounds: 2, guarantee: guarantee(0.5), if_shuffler_colludes: guarantee(null) });
  const collection = async (round) => {
    const made = await served(numbers, { task, round });
    return Collection.read(made.bytes, made.digest);
  };
  const outbox = new FolderOutbox(folder);
  const ask = async () => new Response(JSON.stringify({ phase: 'open', reason: '' }));
  const asked = [];
  const over = (spent) => (asked.push(spent), asked.length > 1 ? 'That is over your limit.' : '');
  const first = new Client(await collection(1), { outbox, ask, over, user: 'Ada' });
  assert.ok(await first.prepare(7));
  const loss = (epsilon) => ({ epsilon, delta: 0, distance: 5, shape: 'flat' });
  const spent = (await first.entry()).spent;
  const { day, ...others } = spent;
  assert.match(day, /^20\d\d-\d\d-\d\d$/);
  assert.deepEqual(others, {
    user: 'Ada', task: 'a'.repeat(64), analyst: '', round: 1, unit: 'kcal', moves: "values of a person's items", rounds: 2,
    local: loss(null), shuffled: loss(0.5), honest: 30,
  }); // prettier-ignore
  assert.equal(await first.decline(), true);
  assert.deepEqual((await first.entry()).spent, spent);
  const second = new Client(await collection(2), { outbox, ask, over, user: 'Ada' });
  await assert.rejects(second.prepare(7), { name: 'NotSent', message: 'That is over your limit.' });
  assert.equal(await second.entry(), undefined);
  assert.deepEqual(asked.map(({ round }) => round), [1, 2]);
});
