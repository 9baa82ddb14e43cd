export { Client, NotSent, type Options, type Phase, type Prepared, type Receipt } from './client.js';
export { Collection, CollectionError, type Party, type Terms } from './collection.js';
export { type InputRecipe, type Place, type Value, ValueError, type ValueRecipe } from './inputs.js';
export { BrowserOutbox, type Change, type Entry, type Outbox } from './outbox.js';
export { type FollowedRecipe, numbersOf, payloadsOf, type Recipe } from './report.js';
export { Sealer } from './sealing.js';
export type { Loss, Spent } from './spent.js';
export { Words } from './words.js';
