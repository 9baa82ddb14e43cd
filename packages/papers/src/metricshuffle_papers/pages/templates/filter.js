// Shows only the items with some verdicts, of a paper, or with some words. Without this script everything is shown.
const form = document.getElementById("filter");
const found = document.getElementById("found");
const items = [...document.querySelectorAll("section[data-paper]")].map((section) => ({
  section,
  text: section.textContent.toLowerCase(),
  rows: [...section.querySelectorAll("tr[data-verdict]")],
  links: document.querySelectorAll(`nav li:has(a[href="#${CSS.escape(section.id)}"])`),
}));
const chosen = new Set();

// how many rows have a verdict is also where it is chosen
for (const place of document.querySelectorAll(".counts > li")) {
  const button = document.createElement("button");
  button.type = "button";
  button.setAttribute("aria-pressed", "false");
  button.append(...place.firstElementChild.childNodes);
  place.replaceChildren(button);
  button.addEventListener("click", () => {
    const verdict = place.dataset.verdict;
    if (!chosen.delete(verdict)) chosen.add(verdict);
    button.setAttribute("aria-pressed", String(chosen.has(verdict)));
    show();
  });
}

function show() {
  const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const paper = form.elements.paper.value;
  const papers = new Set();
  let seen = 0;
  for (const { section, text, rows, links } of items) {
    const matching = rows.filter((row) => !chosen.size || chosen.has(row.dataset.verdict));
    const shown = (!chosen.size || matching.length > 0) && (!paper || section.dataset.paper === paper) && words.every((word) => text.includes(word));
    section.hidden = !shown;
    for (const link of links) link.hidden = !shown;
    for (const row of rows) row.hidden = !matching.includes(row);
    if (!shown) continue;
    seen += 1;
    papers.add(section.dataset.paper);
    if (chosen.size) for (const row of matching) row.closest("details")?.setAttribute("open", "");
  }
  for (const heading of document.querySelectorAll(".paper, nav .group")) heading.hidden = !papers.has(heading.dataset.paper);
  const all = seen === items.length;
  found.textContent = all ? `All ${items.length} items are shown.` : seen ? `${seen} of ${items.length} items are shown.` : "No item is like that.";
}

form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => {
  chosen.clear();
  for (const button of document.querySelectorAll(".counts button")) button.setAttribute("aria-pressed", "false");
  setTimeout(show); // after the fields are empty
});
form.hidden = false;
show();
