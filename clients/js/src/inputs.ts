/** What a person enters, as whole numbers: steps of a number, places in a list, the column and row of a cell, points of a degree. */
import { type Box, Plane } from './projection.js';

export type ValueRecipe =
  | { kind: 'number'; whole: boolean; low: string; high: string; step: string; rounding: 'nearest' | 'down'; unit: string }
  | { kind: 'label'; labels: readonly string[] }
  /** Codes of a trip: place of its start * labels + place of its end. */
  | { kind: 'trip'; labels: readonly string[] }
  | { kind: 'place'; width: number; height: number; cell: string; unit: string; box: readonly [string, string, string, string] | null }
  | { kind: 'degrees'; box: readonly [string, string, string, string]; points: string; corner: readonly [string, string]; unit: string };

type LabelRecipe = Extract<ValueRecipe, { kind: 'label' }>;
type NumberRecipe = Extract<ValueRecipe, { kind: 'number' }>;

export interface GroupRecipe {
  kind: 'group';
  by: string;
  label: LabelRecipe;
  number: NumberRecipe;
  /** Codes of a group: group * width + steps of the number. */
  width: number;
}

/** What a person holds has a code for each of its parts: column * width + steps, or 2 * place + 1 of a label in a set. */
export type RecordRecipe =
  | { kind: 'row'; columns: readonly string[]; number: NumberRecipe; width: number }
  | { kind: 'set'; label: LabelRecipe; most: number }
  | { kind: 'keys'; label: LabelRecipe; number: NumberRecipe; width: number; most: number };

export type InputRecipe = ValueRecipe | GroupRecipe | RecordRecipe | { kind: 'items'; of: ValueRecipe; count: number | null; most: number | null };

/** A place on a map in degrees, or a cell of the grid counted from the left and from below, from 0. */
export type Place = { latitude: number; longitude: number } | { column: number; row: number };
/** A label, and a number of a person of that group, or for that key. */
export type LabelledNumber = { label: string; number: number };
/** A trip from one label to another, or to the same. */
export type Trip = { from: string; to: string };
export type Value = number | string | Place | LabelledNumber | Trip;

/** What was entered is none of the values that are asked for; the message is for the person. */
export class ValueError extends Error {
  override name = 'ValueError';
}

/** Halves go to the even neighbour, as in IEEE arithmetic. */
function nearest(number: number): number {
  const below = Math.floor(number);
  const over = number - below;
  return over < 0.5 || (over === 0.5 && below % 2 === 0) ? below : below + 1;
}

/** Steps of a number; `name` says which of several it is. */
function stepOf(recipe: NumberRecipe, value: Value, name = ''): number {
  const [low, high, step] = [Number(recipe.low), Number(recipe.high), Number(recipe.step)];
  if (typeof value !== 'number' || !(value >= low && value <= high)) {
    throw new ValueError(`${name}Enter a number from ${low} to ${high}${recipe.unit && ` ${recipe.unit}`}.`);
  }
  if (recipe.whole && !Number.isInteger(value)) throw new ValueError(`${name}Enter a whole number.`);
  const steps = (value - low) / step;
  // numbers are as many steps, or in as many bins, as the range takes; both ends belong to it
  return recipe.rounding === 'nearest'
    ? Math.min(nearest(steps), Math.ceil((high - low) / step - 1e-9))
    : Math.min(Math.floor(steps), Math.max(1, Math.ceil((high - low + Number(recipe.whole)) / step - 1e-9)) - 1);
}

const planes = new Map<string, Plane>();

/** The latitude and longitude of a place within a box. */
function degreesOf([south, west, north, east]: Box, value: Value): [number, number] {
  const { latitude, longitude } = value as { latitude: number; longitude: number };
  if (!(latitude >= south && latitude <= north && longitude >= west && longitude <= east)) {
    throw new ValueError(`Choose a latitude from ${south} to ${north} and a longitude from ${west} to ${east}.`);
  }
  return [latitude, longitude];
}

/** A place as whole points from the south-west corner, so many a degree: a power of two, so that products with it are exact. */
export function pointsOf(recipe: Extract<ValueRecipe, { kind: 'degrees' }>, value: Value): [bigint, bigint] {
  const points = Number(recipe.points);
  const [north, east] = degreesOf(recipe.box.map(Number) as unknown as Box, value).map((degrees) => BigInt(nearest(degrees * points)));
  return [north! - BigInt(recipe.corner[0]), east! - BigInt(recipe.corner[1])];
}

/** The column and row of a place. */
export function cellOf(recipe: Extract<ValueRecipe, { kind: 'place' }>, value: Value): [number, number] {
  if (typeof value !== 'object' || 'label' in value || 'from' in value) throw new ValueError('Choose a place.');
  if ('column' in value) {
    const { column, row } = value;
    const inside = (place: number, size: number) => Number.isInteger(place) && place >= 0 && place < size;
    if (!inside(column, recipe.width) || !inside(row, recipe.height)) {
      throw new ValueError(`Choose a column from 0 to ${recipe.width - 1} and a row from 0 to ${recipe.height - 1}.`);
    }
    return [column, row];
  }
  if (!recipe.box) throw new ValueError('This grid is not on a map: give a column and a row.');
  const box = recipe.box.map(Number) as unknown as Box;
  const [latitude, longitude] = degreesOf(box, value);
  const plane = planes.get(recipe.box.join()) ?? new Plane(box);
  planes.set(recipe.box.join(), plane);
  const size = Number(recipe.cell) * (recipe.unit === 'km' ? 1000 : 1);
  const [x, y] = plane.metres(latitude, longitude);
  const snapped = (metres: number, cells: number) => Math.min(Math.max(Math.floor(metres / size), 0), cells - 1);
  return [snapped(x, recipe.width), snapped(y, recipe.height)];
}

function placeOf(labels: readonly string[], value: Value): number {
  const place = labels.indexOf(value as string);
  if (place < 0) throw new ValueError('Choose one of the labels.');
  return place;
}

/** One code of a value: cells are coded row * width + column. */
export function codeOf(recipe: ValueRecipe | GroupRecipe, value: Value): number {
  switch (recipe.kind) {
    case 'group': {
      if (typeof value !== 'object' || !('label' in value)) throw new ValueError(`Choose a ${recipe.by} and enter a number.`);
      return codeOf(recipe.label, value.label) * recipe.width + codeOf(recipe.number, value.number);
    }
    case 'number':
      return stepOf(recipe, value);
    case 'label':
      return placeOf(recipe.labels, value);
    case 'trip': {
      const { from, to } = Object(value) as Trip;
      return placeOf(recipe.labels, from) * recipe.labels.length + placeOf(recipe.labels, to);
    }
    case 'place': {
      const [column, row] = cellOf(recipe, value);
      return row * recipe.width + column;
    }
    default:
      throw new ValueError('This client does not know the values of this collection; use a newer one.');
  }
}

function recordOf(recipe: RecordRecipe, values: readonly Value[]): number[] {
  if (recipe.kind === 'row') {
    if (values.length !== recipe.columns.length) throw new ValueError(`Enter ${recipe.columns.length} numbers.`);
    return values.map((number, place) => place * recipe.width + stepOf(recipe.number, number, `${recipe.columns[place]}: `));
  }
  const labels = values.map((held) => (Object(held) as LabelledNumber).label ?? held);
  const places = labels.map((label) => placeOf(recipe.label.labels, label));
  // a label of a set may be said twice, a key has one number
  const held = [...new Set(places)];
  if (held.length > recipe.most || (recipe.kind === 'keys' && held.length < places.length)) {
    throw new ValueError(`Choose up to ${recipe.most} different ones.`);
  }
  if (recipe.kind === 'set') return held.map((place) => 2 * place + 1);
  return places.map((place, at) => place * recipe.width + stepOf(recipe.number, (values[at] as LabelledNumber).number, `${labels[at]}: `));
}

/** The codes of what a person holds: of her items, of the parts of a record, or of her one value. */
export function codesOf(recipe: InputRecipe, value: Value | readonly Value[]): number[] {
  if (recipe.kind !== 'items' && recipe.kind !== 'row' && recipe.kind !== 'set' && recipe.kind !== 'keys') return [codeOf(recipe, value as Value)];
  if (!Array.isArray(value)) throw new ValueError('Enter a list.');
  if (recipe.kind !== 'items') return recordOf(recipe, value as Value[]);
  const { count, most } = recipe;
  if (count !== null ? value.length !== count : value.length < 1 || value.length > (most ?? Infinity)) {
    throw new ValueError(count !== null ? `Enter exactly ${count} items.` : `Enter between 1 and ${most ?? 'any number of'} items.`);
  }
  return (value as Value[]).map((item) => codeOf(recipe.of, item));
}
