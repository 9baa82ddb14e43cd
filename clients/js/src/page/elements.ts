/** What both parts of the page do with its elements. */
export const find = <Kind extends Element = HTMLInputElement>(id: string) => document.getElementById(id) as unknown as Kind;

/** Words in a place of the page that is seen only if there are any. */
export function tell(id: string, words: string): void {
  const place = find(id);
  place.textContent = words;
  place.hidden = !words;
}

export function line(words: string, ...more: Node[]): HTMLLIElement {
  const made = document.createElement('li');
  made.append(words, ...more);
  return made;
}
