/** The join page: an answer becomes a report, which is shown before it is sent. What is said is in the page; here is what happens. */
import { Client, NotSent, type Options, type Prepared } from '../client.js';
import { Collection, CollectionError } from '../collection.js';
import type { Entry } from '../outbox.js';
import { find, line, tell } from './elements.js';
import { Field } from './field.js';

declare global {
  var limits: Options | undefined; // set by budget.ts
}

const SHOWN = 40; // messages; a vector has hundreds

/** One of the stages is seen; whoever hears the page is led to its heading. */
function stage(id: 'answer' | 'ready' | 'done' | 'before' | 'declined' | 'withdrawn', lead = true): void {
  for (const name of ['answer', 'ready', 'done', 'before', 'declined', 'withdrawn']) find(name).hidden = name !== id;
  if (lead) find(id).querySelector('h2')!.focus();
}

const shown = (moment: string | number) => new Date(moment).toLocaleString([], { dateStyle: 'long', timeStyle: 'short' });

/** What went wrong, in a sentence. */
const sentence = (wrong: unknown) => (wrong as Error).message;

/** The messages as they are before they are sealed. */
function show(client: Client, { numbers }: Prepared): void {
  const { recipe } = client.collection.terms;
  if (!recipe.browser) return;
  const { each, width, piles } = recipe.payload;
  const list = find('messages');
  const labels = recipe.protocol === 'frequencies' && recipe.randomizer.kind === 'k-ary' && recipe.input.kind === 'label' ? recipe.input.labels : [];
  for (let message = 0; message < Math.min(piles * each, SHOWN); message++) {
    const part = numbers.slice(message * width, (message + 1) * width).map((number) => labels[Number(number)] ?? String(number));
    list.append(line((piles > 1 ? `${Math.floor(message / each) + 1}: ` : '') + part.join(', ')));
  }
  if (piles * each > SHOWN) list.append(line(`and ${piles * each - SHOWN} more`));
  find('drawn').hidden = false;
}

/** What was made before: it waits, was sent or was declined. */
function known(client: Client, entry: Entry, lead: boolean): void {
  if (entry.report) return waiting(client, null, lead);
  if (entry.at) find('when').textContent = shown(entry.at);
  stage(entry.state === 'sent' ? 'before' : entry.tried ? 'withdrawn' : 'declined', lead);
}

function waiting(client: Client, prepared: Prepared | null, lead = true): void {
  if (prepared) show(client, prepared);
  find('waits').hidden = !!prepared;
  stage('ready', lead);
  const send = find<HTMLButtonElement>('send');
  const decline = find<HTMLButtonElement>('decline');
  const ticket = find('other-ticket');
  let refused = false;
  send.onclick = async () => {
    send.disabled = true; // (what is on its way can be declined: then it is said that it may have been sent)
    tell('sending', client.collection.terms.delay ? 'Waiting for a random moment, then sending. Keep this page open.' : 'Sending.');
    try {
      if (refused) await client.changeTicket(ticket.value);
      await client.send();
      stage('done');
    } catch (wrong) {
      const entry = await client.entry();
      if (entry && !entry.report) return known(client, entry, true); // sent or declined in another window
      tell('sending', sentence(wrong));
      refused ||= wrong instanceof NotSent && wrong.status === 403;
      find('change').hidden = !refused;
      send.disabled = wrong instanceof NotSent && !wrong.again;
      decline.disabled = wrong instanceof NotSent && wrong.status === 410;
    }
  };
  decline.onclick = async () => {
    try {
      stage((await client.decline()) ? 'declined' : 'withdrawn');
    } catch (wrong) {
      tell('sending', sentence(wrong));
    }
  };
}

function asking(client: Client): void {
  const { terms } = client.collection;
  if (!terms.recipe.browser) return;
  const field = new Field(terms.recipe.input);
  const make = find<HTMLButtonElement>('make');
  find<HTMLFormElement>('form').onsubmit = async (event) => {
    event.preventDefault();
    make.disabled = true;
    tell('wrong', '');
    try {
      const prepared = await client.prepare(field.value(), terms.ticket ? find('ticket').value : '');
      if (prepared) waiting(client, prepared);
      else known(client, (await client.entry())!, true); // another window was quicker
    } catch (wrong) {
      tell('wrong', sentence(wrong));
      make.disabled = false;
    }
  };
  make.disabled = false;
}

async function start(): Promise<void> {
  for (const time of document.querySelectorAll('time')) {
    if (time.dateTime) time.textContent = shown(time.dateTime);
  }
  if (find('origin').textContent !== location.origin) {
    find('itself')?.remove();
    find('origin').textContent = location.origin;
  }
  const served = new TextEncoder().encode(JSON.parse(find('collection').textContent!) as string);
  // the digest in the address is the one that somebody was sent; without one, that of the page
  const pinned = /[0-9a-f]{64}/.exec(location.hash + location.pathname)?.[0] ?? find('digest').textContent!;
  if (!globalThis.crypto?.subtle) throw new CollectionError('A browser seals reports on pages with https only; ask for such an address.');
  const client = new Client(await Collection.read(served, pinned), globalThis.limits);
  const entry = await client.entry();
  if (entry) {
    find('form').hidden = true;
    known(client, entry, false);
  }
  const notes = await client.checkOpen();
  if (notes.length) tell('clock', `About the clock of the shuffler: ${notes.join(' ')}`);
  if (!entry) asking(client);
}

start().catch((wrong: unknown) => {
  tell('notice', sentence(wrong));
  if (find('form')) find('form').hidden = true;
});
