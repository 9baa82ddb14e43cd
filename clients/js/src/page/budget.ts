/** The part of the join page that shows what was answered before, and asks at limits. It is a script of its own, before that of the page. */
import { BrowserLedger, exceededIn, type Limit, limitText, remarks, sections } from '../budget.js';
import { find, line, tell } from './elements.js';

const ledger = new BrowserLedger();

interface Asked {
  extends: string;
  task: string;
}

function asked(): Asked {
  return JSON.parse(JSON.parse(find('collection').textContent!) as string) as Asked;
}

globalThis.limits = {
  over(spent, records) {
    const told = exceededIn(records, spent, Date.parse(asked().extends));
    find('over').hidden = !told.length;
    if (!told.length || find('agree').checked) return '';
    return `${told.join(' ')} Nothing was made or sent. Choose “${find('agree-words').textContent}” to go on.`;
  },
};

function button(words: string, act: () => Promise<void>): HTMLButtonElement {
  const made = document.createElement('button');
  made.type = 'button';
  made.textContent = words;
  made.onclick = () => void act().then(show, complain);
  return made;
}

const complain = (wrong: unknown) => tell('limit-wrong', (wrong as Error).message);

async function show(): Promise<void> {
  const known = await ledger.read();
  tell('limit-wrong', '');
  find('answered').replaceChildren(
    ...sections(known.rows).map(({ moves, sums, reports }) => {
      const inner = document.createElement('ul');
      inner.append(...[...sums, ...reports].map((words) => line(words)));
      return line(`${moves}:`, inner);
    }),
  );
  tell('none-answered', known.rows.length ? '' : 'This list has no report.');
  find('claimed').hidden = find('forget').hidden = !known.rows.length;
  find('known').replaceChildren(...remarks(known).map((words) => line(words)));
  const without = (limit: Limit) => known.limits.filter((other) => other !== limit);
  find('limits').replaceChildren(
    ...known.limits.map((limit) => line(`${limitText(limit)} `, button('Remove', () => ledger.setLimits(without(limit))))),
  );
  find<HTMLFormElement>('limit-form').onsubmit = (event) => {
    event.preventDefault();
    const { unit } = claimed();
    const limit = {
      epsilon: find('limit-epsilon').value.trim(),
      distance: find('limit-distance').value.trim(),
      unit,
      days: Number(find('limit-days').value),
      honest: find('limit-honest').checked,
    };
    const isOther = (other: Limit) => limitText({ ...other, epsilon: '' }) !== limitText({ ...limit, epsilon: '' });
    void (async () => ledger.setLimits([...known.limits.filter(isOther), limit]))().then(show, complain);
  };
  find('forget').onclick = () => {
    find('forgetting').hidden = false;
    find('forget-sure').focus();
  };
  find('forget-sure').onclick = () => {
    find('forgetting').hidden = true;
    void ledger.forget().then(show, complain);
  };
}

/** Unit and distance that the task claims, which a limit begins with. */
function claimed(): { unit: string; distance: string } {
  const { guarantee } = JSON.parse(asked().task) as { guarantee?: { unit?: unknown; distance?: unknown } };
  const { unit, distance } = guarantee ?? {};
  return { unit: typeof unit === 'string' ? unit : '', distance: typeof distance === 'number' ? String(distance) : '' };
}

if (find('budget')) {
  find('limit-distance').value = claimed().distance;
  find('budget').hidden = false;
  show().catch(complain);
}
