// Several windows on one outbox, in a thousand orders of making, sending, declining, crashing and sending again.
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import { Client, Collection, NotSent } from '../dist/index.js';
import { FolderOutbox } from '../dist/node.js';
import { served } from './served.mjs';

const RUNS = 1000;
const vectors = JSON.parse(await readFile(new URL('vectors.json', import.meta.url), 'utf8'));
const recipe = Object.values(vectors.reports).map((report) => report.recipe).find(({ payload }) => payload.piles * payload.each === 1);

/** Random numbers below a bound, the same ones for a seed (mulberry32). */
function seeded(seed) {
  return (bound) => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % bound;
  };
}

const turn = () => new Promise((done) => setImmediate(done));
const never = new Promise(() => {});

/** An outbox in memory, which takes its time: what happens between two changes is decided by the seed and not by the disk. */
class MemoryOutbox {
  #entries = new Map();

  constructor(random) {
    this.random = random;
  }

  async update(key, change) {
    for (let turns = this.random(3); turns; turns--) await turn();
    const entry = change(this.#entries.get(key)) ?? this.#entries.get(key);
    this.#entries.set(key, entry);
    for (let turns = this.random(3); turns; turns--) await turn();
    return entry;
  }
}

/** One person, one outbox, several windows that may crash; a network that delivers, loses or refuses what is posted when it is told to. */
class World {
  posts = []; // bytes that left a window
  stored = new Set();
  flying = []; // posts without an answer
  windows = [];
  told = []; // what each call said

  constructor(collection, shared, user) {
    Object.assign(this, { collection, shared, user });
  }

  open() {
    const window = { alive: true, busy: 0 }; // at work, and not waiting for an answer or for a moment to come
    this.windows.push(window);
    const outbox = {
      update: async (...given) => {
        if (!window.alive) return never;
        window.busy++;
        try {
          const entry = await this.shared.update(...given);
          return window.alive ? entry : never;
        } finally {
          window.busy--;
        }
      },
    };
    const ask = async (url, { method, body }) => {
      if (!window.alive) return never;
      if (method !== 'POST') return new Response(JSON.stringify({ phase: 'open', reason: '' }));
      const text = Buffer.from(body).toString('hex');
      this.posts.push(text);
      return new Promise((answer, fail) => this.flying.push({ text, answer, fail }));
    };
    window.client = new Client(this.collection, { outbox, ask, user: this.user, patience: 5000 });
    return window;
  }

  /** An act of a window, whose outcome is noted whenever it comes. */
  act(window, name, promise) {
    if (name === 'make') window.busy++;
    promise.finally(() => (window.busy -= name === 'make')).then(
      (value) => this.told.push({ name, value, posts: this.posts.length }),
      (wrong) => {
        if (!(wrong instanceof NotSent)) throw wrong;
        this.told.push({ name, wrong: wrong.message, posts: this.posts.length });
      },
    );
  }

  /** What becomes of one of the posts. */
  land(random) {
    const [{ text, answer, fail }] = this.flying.splice(random(this.flying.length), 1);
    const outcome = random(4);
    if (outcome < 2) this.stored.add(text);
    if (outcome === 0) answer(new Response(null, { status: 204 }));
    else if (outcome === 3) answer(new Response(null, { status: 503 }));
    else fail(new TypeError(outcome === 1 ? 'the answer was lost' : 'the report was lost'));
  }

  /** Until every window waits for an answer, for a moment to come, or for nothing. */
  async quiet() {
    const isBusy = () => this.windows.some(({ alive, busy }) => alive && busy);
    for (let still = 0; still < 4; still = isBusy() ? 0 : still + 1) await turn();
  }
}

test(`${RUNS} interleavings: never sent after "nothing was sent", never two reports, never sent again once declined`, async (context) => {
  const folder = await mkdtemp(join(tmpdir(), 'outbox-'));
  context.after(() => rm(folder, { recursive: true }));
  const made = await served(recipe);
  const collection = await Collection.read(made.bytes, made.digest);
  const { input } = recipe;
  const value = input.kind === 'label' ? input.labels[0] : Number(input.low);
  const seen = { nothing: 0, perhaps: 0, stored: 0, again: 0 };
  context.mock.timers.enable({ apis: ['setTimeout', 'Date'] });
  for (let run = 0; run < RUNS; run++) {
    const random = seeded(run);
    const world = new World(collection, run % 25 ? new MemoryOutbox(random) : new FolderOutbox(folder), `${run}`);
    const windows = [world.open(), world.open(), world.open()];
    let final = Infinity; // so many posts there were when it was declined and nobody was about to post
    for (let step = 0; step < 12; step++) {
      const place = random(windows.length);
      const window = windows[place];
      const act = step ? random(12) : 0;
      if (random(2)) await world.quiet();
      if (act === 0) world.act(window, 'make', window.client.prepare(value).then((prepared) => !!prepared));
      else if (act === 1) world.act(window, 'submit', window.client.submit(value));
      else if (act < 4) world.act(window, 'send', window.client.send());
      else if (act === 4) {
        if (random(2)) {
          await world.quiet();
          const before = world.posts.length;
          const nothing = await window.client.decline().catch(() => null);
          if (nothing !== null) final = Math.min(final, before);
          world.told.push({ name: 'decline', value: nothing, posts: before });
        } else world.act(window, 'decline', window.client.decline());
      } else if (act === 5) {
        window.alive = false;
        windows[place] = world.open();
      } else if (act === 6) context.mock.timers.tick(1500);
      else if (world.flying.length) world.land(random);
      for (let turns = random(4); turns; turns--) await turn();
      context.mock.timers.tick(1); // (even those who need not wait do so for a moment)
    }
    for (let round = 0; round < 3 || world.flying.length; round++) {
      while (world.flying.length) world.land(random);
      await world.quiet();
      context.mock.timers.tick(30_000); // patience ends
      await world.quiet();
    }
    const declined = world.told.filter(({ name, value: said }) => name === 'decline' && said !== undefined && said !== null);
    const story = () => `run ${run}: ${JSON.stringify(world.told)}, ${world.posts.length} posts`;
    if (declined.some(({ value: nothing }) => nothing)) assert.equal(world.posts.length, 0, story());
    assert.ok(new Set(world.posts).size <= 1, story());
    assert.ok(world.posts.length <= final, story());
    assert.ok(world.told.filter(({ name, value: said }) => (name === 'make' && said === true) || said?.fresh).length <= 1, story());
    const thanked = world.told.some(({ name, value: said, wrong }) => !wrong && (name === 'send' || (name === 'submit' && said)));
    if (thanked) assert.equal(world.stored.size, 1, story());
    seen.nothing += declined.some(({ value: nothing }) => nothing);
    seen.perhaps += declined.some(({ value: nothing }) => !nothing);
    seen.stored += world.stored.size;
    seen.again += world.posts.length > 1;
  }
  for (const [what, runs] of Object.entries(seen)) assert.ok(runs > RUNS / 50, `${what}: ${JSON.stringify(seen)}`);
});
