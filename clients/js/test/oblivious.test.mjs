// Capsules: the vectors of docs/spec/vectors (or the folder that SPEC_VECTORS names), and a client through a relay.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { pathToFileURL } from 'node:url';
import { Client, NotSent } from '../dist/index.js';
import { FolderOutbox } from '../dist/node.js';
import { AnswerKey, decodeResponse, encodeRequest, relayed, RelayError, sealCapsule } from '../dist/oblivious.js';
import { bytesOf, hexOf } from '../dist/sealing.js';
import { opened, served, suite } from './served.mjs';

const folder = process.env.SPEC_VECTORS ? pathToFileURL(`${process.env.SPEC_VECTORS}/`) : new URL('../../../docs/spec/vectors/', import.meta.url);
const skip = !existsSync(folder) && 'the vectors of the repository are not here';
const vectors = skip ? {} : JSON.parse(await readFile(new URL('oblivious.json', folder), 'utf8'));
const recipes = JSON.parse(await readFile(new URL('vectors.json', import.meta.url), 'utf8')).reports;

async function pairOf(secret) {
  const { createPrivateKey, createPublicKey } = await import('node:crypto');
  const pkcs8 = Buffer.concat([Buffer.from('302e020100300506032b656e04220420', 'hex'), Buffer.from(secret, 'hex')]);
  const open = createPublicKey(createPrivateKey({ key: pkcs8, format: 'der', type: 'pkcs8' })).export({ format: 'jwk' }).x;
  return {
    privateKey: await suite.kem.importKey('raw', bytesOf(secret).buffer, false),
    publicKey: await suite.kem.deserializePublicKey(Uint8Array.from(Buffer.from(open, 'base64url'))),
  };
}

test('HPKE exports the values of RFC 9180', { skip }, async () => {
  const { private: secret, ephemeral, info, plain, aad, sealed, exported } = vectors.rfc9180;
  const { publicKey } = await pairOf(secret);
  const context = await suite.createSenderContext({ recipientPublicKey: publicKey, info: bytesOf(info), ekm: await pairOf(ephemeral) });
  const box = new Uint8Array(await context.seal(bytesOf(plain), bytesOf(aad)));
  assert.equal(hexOf(new Uint8Array(context.enc)) + hexOf(box), sealed);
  for (const [purpose, value] of Object.entries(exported)) {
    assert.equal(hexOf(new Uint8Array(await context.export(bytesOf(purpose), 32))), value);
  }
});

test('messages of RFC 9292 and of the specification', { skip }, () => {
  for (const { name, encoded, status, control, headers, content } of vectors.messages) {
    if (status) {
      const response = decodeResponse(bytesOf(encoded));
      assert.deepEqual({ ...response, content: hexOf(response.content) }, { status, headers, content }, name);
    } else {
      assert.throws(() => decodeResponse(bytesOf(encoded)), RelayError);
      const [method, scheme, authority, path] = control;
      if (!headers.length) assert.equal(hexOf(encodeRequest(method, `${scheme}://${authority}${path}`, bytesOf(content))), encoded, name);
    }
  }
  for (const { name, encoded } of vectors.malformed) assert.throws(() => decodeResponse(bytesOf(encoded)), RelayError, name);
});

test('capsules of RFC 9458 and of the specification', { skip }, async () => {
  assert.equal(vectors.capsules.length, 3);
  for (const { configuration, ephemeral, request, capsule, secret, answer, response } of vectors.capsules) {
    const made = await sealCapsule(bytesOf(configuration), bytesOf(request), await pairOf(ephemeral));
    assert.equal(hexOf(made.capsule), capsule);
    assert.equal(hexOf(made.key.secret), secret);
    assert.equal(hexOf(await made.key.opened(bytesOf(answer))), response);
    const changed = bytesOf(answer);
    for (let place = 0; place < changed.length; place += 5) {
      changed[place] ^= 1;
      await assert.rejects(made.key.opened(changed), RelayError);
      changed[place] ^= 1;
    }
    await assert.rejects(made.key.opened(bytesOf(answer).slice(0, 9)), RelayError);
    await assert.rejects(sealCapsule(bytesOf(`${configuration}00`), bytesOf(request)), RelayError);
  }
  for (const { name, configuration } of vectors.refused) {
    await assert.rejects(sealCapsule(bytesOf(configuration), new Uint8Array(1024)), RelayError, name);
  }
  const { configuration, ephemeral, request } = vectors.capsules[1];
  const { key } = await sealCapsule(bytesOf(configuration), bytesOf(request), await pairOf(ephemeral));
  for (const { name, answer } of vectors.forged) await assert.rejects(key.opened(bytesOf(answer)), RelayError, name);
  const random = await Promise.all([0, 1].map(() => sealCapsule(bytesOf(vectors.capsules[1].configuration), new Uint8Array(1024))));
  assert.notEqual(hexOf(random[0].capsule.slice(7, 39)), hexOf(random[1].capsule.slice(7, 39)));
});

/** A gateway in JavaScript that answers reports with these statuses, and a relay that answers some calls by itself. */
async function behindRelay(context, statuses, own = []) {
  const gatewayKey = await suite.kem.generateKeyPair();
  const open = hexOf(new Uint8Array(await suite.kem.serializePublicKey(gatewayKey.publicKey)));
  const gateway = `000020${open}000400010001`;
  const made = await served(recipes['whole numbers'].recipe, { url: 'http://shuffler.example', format: 'metricshuffle-collection/2', gateway });
  const seen = { lengths: new Set(), reports: [], calls: 0 };

  async function answered(capsule) {
    const head = capsule.slice(0, 7);
    const enc = capsule.slice(7, 39);
    const info = new Uint8Array([...new TextEncoder().encode('message/bhttp request\0'), ...head]);
    const receiver = await suite.createRecipientContext({ recipientKey: gatewayKey.privateKey, enc, info });
    const request = Buffer.from(await receiver.open(capsule.slice(39)));
    const path = `/v1/collections/${made.digest}`;
    const text = request.toString('latin1');
    let status = 404;
    let body = Buffer.alloc(0);
    if (text.includes(`GET\x04http\x10shuffler.example@\x50${path}\0`)) [status, body] = [200, Buffer.from(made.bytes)];
    if (text.includes(`POST\x04http\x10shuffler.example@\x58${path}/reports\0`)) {
      const start = text.indexOf('/reports\0') + 9;
      const size = ((request[start] & 63) << 8) | request[start + 1];
      seen.reports.push(hexOf(request.subarray(start + 2, start + 2 + size)));
      status = statuses.length > 1 ? statuses.shift() : statuses[0];
    }
    const inner = Buffer.concat([
      Buffer.from([1, 0x40 | (status >> 8), status & 255, 0, 0x80 | (body.length >> 24), body.length >> 16, body.length >> 8, body.length].map((byte) => byte & 255)),
      body,
      Buffer.alloc(16),
    ]);
    const secret = new Uint8Array(await receiver.export(new TextEncoder().encode('message/bhttp response'), 16));
    const nonce = crypto.getRandomValues(new Uint8Array(16));
    const hmac = async (key, data) => {
      const held = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']);
      return new Uint8Array(await crypto.subtle.sign('HMAC', held, data));
    };
    const prk = await hmac(new Uint8Array([...enc, ...nonce]), secret);
    const label = (name) => new Uint8Array([...new TextEncoder().encode(name), 1]);
    const key = await crypto.subtle.importKey('raw', (await hmac(prk, label('key'))).slice(0, 16), 'AES-GCM', false, ['encrypt']);
    const iv = (await hmac(prk, label('nonce'))).slice(0, 12);
    return Buffer.concat([nonce, new Uint8Array(await crypto.subtle.encrypt({ name: 'AES-GCM', iv }, key, inner))]);
  }

  const server = createServer((request, response) => {
    const parts = [];
    request.on('data', (part) => parts.push(part));
    request.on('end', async () => {
      const capsule = new Uint8Array(Buffer.concat(parts));
      seen.calls++;
      seen.lengths.add(capsule.length);
      assert.equal(request.headers['content-type'], 'message/ohttp-req');
      const status = own.shift() ?? 200;
      response.writeHead(status).end(status === 200 ? await answered(capsule) : 'something');
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const outbox = await mkdtemp(join(tmpdir(), 'outbox-'));
  context.after(async () => {
    server.close();
    await rm(outbox, { recursive: true });
  });
  const ask = relayed(`http://127.0.0.1:${server.address().port}/relay`, gateway);
  const join_ = (more = {}) => Client.join('http://shuffler.example', made.digest, { outbox: new FolderOutbox(outbox), ask, patience: 20_000, ...more });
  return { made, seen, gateway, ask, client: join_ };
}

test('a client sends through a relay: one report, new capsules, no other call', async (context) => {
  const { client, seen, made } = await behindRelay(context, [503, 204], [200, 200, 502]);
  const joined = await client();
  assert.equal((await joined.submit(480)).sentence, 'The report is stored.');
  assert.equal(new Set(seen.reports).size, 1);
  assert.equal(seen.reports.length, 2);
  assert.equal((await opened(bytesOf(seen.reports[0]), made)).payloads.length, made.terms.messages);
  assert.ok([...seen.lengths].every((length) => length % 1024 === 55));
});

test('what a relay answers by itself is never the answer of the shuffler', async (context) => {
  for (const status of [204, 400, 403, 409, 410, 422]) {
    const { client, seen } = await behindRelay(context, [204], [200, 200, status]);
    const joined = await client({ patience: 0 });
    await assert.rejects(joined.submit(480), (error) => error instanceof NotSent && error.again && error.status === 0);
    assert.equal(seen.reports.length, 0);
    await joined.send();
    assert.equal(seen.reports.length, 1);
  }
});

test('answers of the shuffler are believed, and a collection that names another gateway is not', async (context) => {
  const { client } = await behindRelay(context, [410]);
  await assert.rejects((await client()).submit(480), /closed/);
  const { made, ask, gateway } = await behindRelay(context, [204]);
  assert.equal((await ask('http://shuffler.example/v1/collections/other')).status, 404);
  const state = await ask(`http://shuffler.example/v1/collections/${made.digest}/state`);
  assert.equal((await state.json()).phase, 'open');
  const other = relayed('http://relay.example', gateway.replace(/0001$/, '0001'), async () => new Response('nothing'));
  await assert.rejects(other('http://shuffler.example/v1/collections/x'), RelayError);
  assert.throws(() => relayed('http://relay.example', 'xyz'), RangeError);
  await assert.rejects(new AnswerKey(new Uint8Array(32), new Uint8Array(16)).opened(new Uint8Array(40)), RelayError);
});
