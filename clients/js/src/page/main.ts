/** The join page: an answer becomes a report, which is shown before it is sent. What is said is in the page; here is what happens. */
import { Client, NotSent, type Prepared } from '../client.js';
import { Collection, CollectionError } from '../collection.js';
import { find, line, tell } from './elements.js';
import { Field } from './field.js';

const SHOWN = 40; // messages; a vector has hundreds

/** One of the four stages is seen; whoever hears the page is led to its heading. */
function stage(id: 'answer' | 'ready' | 'done' | 'declined', lead = true): void {
  for (const name of ['answer', 'ready', 'done', 'declined']) find(name).hidden = name !== id;
  if (lead) find(id).querySelector('h2')!.focus();
}

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

function waiting(client: Client, prepared: Prepared | null, lead = true): void {
  if (prepared) show(client, prepared);
  find('before').hidden = !!prepared;
  stage('ready', lead);
  const send = find<HTMLButtonElement>('send');
  const decline = find<HTMLButtonElement>('decline');
  const ticket = find('other-ticket');
  let refused = false;
  send.onclick = async () => {
    send.disabled = decline.disabled = true;
    tell('sending', client.collection.terms.delay ? 'Waiting for a random moment, then sending. Keep this page open.' : 'Sending.');
    try {
      if (refused) await client.changeTicket(ticket.value);
      await client.send();
      stage('done');
    } catch (wrong) {
      tell('sending', sentence(wrong));
      refused ||= wrong instanceof NotSent && wrong.status === 403;
      find('change').hidden = !refused;
      send.disabled = wrong instanceof NotSent && !wrong.again;
      decline.disabled = wrong instanceof NotSent && wrong.status === 410;
    }
  };
  decline.onclick = async () => {
    try {
      await client.decline();
      stage('declined');
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
      waiting(client, await client.prepare(field.value(), terms.ticket ? find('ticket').value : ''));
    } catch (wrong) {
      tell('wrong', sentence(wrong));
      make.disabled = false;
    }
  };
  make.disabled = false;
}

async function start(): Promise<void> {
  for (const time of document.querySelectorAll('time')) {
    time.textContent = new Date(time.dateTime).toLocaleString([], { dateStyle: 'long', timeStyle: 'short' });
  }
  if (find('origin').textContent !== location.origin) {
    find('itself')?.remove();
    find('origin').textContent = location.origin;
  }
  const served = new TextEncoder().encode(JSON.parse(find('collection').textContent!) as string);
  // the digest in the address is the one that somebody was sent; without one, that of the page
  const pinned = /[0-9a-f]{64}/.exec(location.hash + location.pathname)?.[0] ?? find('digest').textContent!;
  if (!globalThis.crypto?.subtle) throw new CollectionError('A browser seals reports on pages with https only; ask for such an address.');
  const client = new Client(await Collection.read(served, pinned));
  if (Date.now() > Date.parse(client.collection.terms.extends)) tell('notice', 'By the clock of this device this collection is closed.');
  else if (Date.now() < Date.parse(client.collection.terms.opens)) tell('notice', 'By the clock of this device this collection is not open yet.');
  const entry = await client.entry();
  if (entry) find('form').hidden = true;
  if (!entry) asking(client);
  else if (entry.state === 'waiting') waiting(client, null, false);
  else stage(entry.state === 'sent' ? 'done' : 'declined', false);
}

start().catch((wrong: unknown) => tell('notice', sentence(wrong)));
