/** The field of a value: a number, a list to choose from, a map to click, several of these, or one for each of several items. */
import { find, line, tell } from './elements.js';
import { cellOf, type InputRecipe, type Value, ValueError, type ValueRecipe } from '../inputs.js';

export class Field {
  readonly #items: Value[] = [];
  readonly #of: Exclude<InputRecipe, { kind: 'items' }>;

  constructor(private readonly recipe: InputRecipe) {
    this.#of = recipe.kind === 'items' ? recipe.of : recipe;
    if (this.#of.kind === 'place') new Chart(this.#of);
    if (this.#of.kind === 'degrees') locate(() => undefined);
    if (recipe.kind === 'items') find('add').onclick = () => this.#add();
  }

  /** What stands in the field. */
  value(): Value | Value[] {
    return this.recipe.kind === 'items' ? this.#items : this.#one();
  }

  #one(): Value | Value[] {
    const numberIn = ({ value }: HTMLInputElement) => (value === '' ? NaN : Number(value));
    const number = () => numberIn(find('value'));
    const parts = (state = '') => [...document.querySelectorAll<HTMLInputElement>(`input[name=part]${state}`)];
    const label = (labels: readonly string[], name: string) => {
      const chosen = document.querySelector<HTMLInputElement>(`input[name=${name}]:checked, select[name=${name}]`);
      if (!chosen?.value) throw new ValueError('Choose an answer.');
      return labels[Number(chosen.value)]!;
    };
    switch (this.#of.kind) {
      case 'number':
        return number();
      case 'label':
        return label(this.#of.labels, 'value');
      case 'group':
        return { label: label(this.#of.label.labels, 'group'), number: number() };
      case 'trip':
        return { from: label(this.#of.labels, 'from'), to: label(this.#of.labels, 'to') };
      case 'row':
        return parts().map(numberIn);
      case 'set': {
        const { labels } = this.#of.label;
        return parts(':checked').map(({ value }) => labels[Number(value)]!);
      }
      case 'keys': {
        const { labels } = this.#of.label;
        // a field that is left empty is a key that is not held; one that cannot be read is no such field
        return parts().flatMap((field, place) => (field.value || field.validity.badInput ? [{ label: labels[place]!, number: numberIn(field) }] : []));
      }
      case 'degrees': {
        return { latitude: numberIn(find('latitude')), longitude: numberIn(find('longitude')) };
      }
      default: {
        const [column, row] = [find('column'), find('row')];
        if (!column.value || !row.value) throw new ValueError('Choose a place.');
        return { column: Number(column.value) - 1, row: Number(row.value) - 1 };
      }
    }
  }

  #add(): void {
    tell('wrong', '');
    try {
      const item = this.#one() as Value;
      if (this.#of.kind === 'number' && Number.isNaN(item)) throw new ValueError('Enter a number.');
      const remove = document.createElement('button');
      const words = typeof item === 'object' && 'column' in item ? `square ${item.column + 1}, ${item.row + 1}` : String(item);
      remove.textContent = 'Remove';
      remove.type = 'button';
      remove.setAttribute('aria-label', `Remove ${words}`);
      remove.onclick = () => {
        this.#items.splice([...find('items').children].indexOf(made), 1);
        made.remove();
        this.#count();
        find('add').focus();
      };
      const made = line(`${words} `, remove);
      find('items').append(made);
      this.#items.push(item);
      this.#count();
    } catch (told) {
      tell('wrong', (told as Error).message);
    }
  }

  #count(): void {
    find('count').textContent = String(this.#items.length);
  }
}

/** The button that fills in where the device is, if the page has one and the device tells it. */
function locate(then: () => void): void {
  const here = find('here');
  if (!here || !navigator.geolocation) return;
  here.hidden = false;
  here.onclick = () =>
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => {
        find('latitude').value = String(coords.latitude);
        find('longitude').value = String(coords.longitude);
        then();
      },
      () => tell('wrong', 'Your device does not tell where it is.'),
    );
}

/** A grid to click. Arrow keys move what is chosen; the fields below it say the same in numbers. */
class Chart {
  constructor(private readonly recipe: Extract<ValueRecipe, { kind: 'place' }>) {
    const { width, height } = recipe;
    const map = find<SVGSVGElement>('map');
    map.onclick = (event) => {
      const { x, y } = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM()!.inverse());
      this.#choose(Math.floor(x), height - 1 - Math.floor(y));
    };
    map.onkeydown = (event) => {
      const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!by) return;
      event.preventDefault();
      const [column, row] = [Number(find('column').value), Number(find('row').value)];
      if (column && row) this.#choose(column - 1 + by[0]!, row - 1 + by[1]!);
      else this.#choose(width >> 1, height >> 1);
    };
    for (const id of ['column', 'row']) find(id).oninput = () => this.#draw();
    for (const id of ['latitude', 'longitude']) if (find(id)) find(id).oninput = () => this.#locate();
    locate(() => this.#locate());
  }

  #locate(): void {
    const [latitude, longitude] = [find('latitude').value, find('longitude').value];
    if (!latitude || !longitude) return;
    try {
      this.#choose(...cellOf(this.recipe, { latitude: Number(latitude), longitude: Number(longitude) }));
      tell('wrong', '');
    } catch (told) {
      tell('wrong', (told as Error).message);
    }
  }

  #choose(column: number, row: number): void {
    const within = (place: number, size: number) => String(Math.min(Math.max(place, 0), size - 1) + 1);
    find('column').value = within(column, this.recipe.width);
    find('row').value = within(row, this.recipe.height);
    this.#draw();
  }

  #draw(): void {
    const [column, row] = [Number(find('column').value), Number(find('row').value)];
    const inside = column >= 1 && row >= 1 && column <= this.recipe.width && row <= this.recipe.height;
    const [square, ring] = find<SVGGElement>('chosen').children as unknown as [SVGRectElement, SVGCircleElement];
    const place = (mark: Element, x: string, y: string, middle: number) => {
      mark.setAttribute(x, String(column - 1 + middle));
      mark.setAttribute(y, String(this.recipe.height - row + middle));
    };
    place(square, 'x', 'y', 0);
    place(ring, 'cx', 'cy', 0.5);
    find('where').textContent = inside ? `Square ${column}, ${row}` : '';
    find('chosen').toggleAttribute('hidden', !inside);
  }
}
