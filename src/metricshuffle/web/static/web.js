// What the planner page needs besides htmx: sliders, dependent fields, the address, and a notice if the server does not answer.
"use strict";
document.documentElement.classList.add("live");
const windowName = Math.random().toString(36).slice(2);
let editing = false; // inputs up to the next change share one history entry

document.addEventListener("htmx:configRequest", (event) => {
  event.detail.headers["X-Window"] = windowName;
});

// Fields

const form = document.querySelector("form[data-live]");

function shown() {
  for (const field of form.querySelectorAll("[data-when]")) {
    const named = form.elements.namedItem(field.dataset.when); // namedItem, because elements.item is a function
    const value = named instanceof RadioNodeList ? named.value : named && named.value;
    field.hidden = !field.dataset.is.split("|").includes(value);
  }
  const unit = form.elements.namedItem("unit");
  if (unit) for (const place of form.querySelectorAll("[data-unit]")) place.textContent = unit.value;
}

function fromSlider(slider) {
  const low = Number(slider.dataset.low), high = Number(slider.dataset.high), part = slider.value / 1000;
  const value = "log" in slider.dataset ? low * Math.pow(high / low, part) : low + (high - low) * part;
  return String("whole" in slider.dataset ? Number(Math.round(value).toPrecision(2)) : Number(value.toPrecision(2)));
}

// A key moves a slider to the next number that it can show, although its thumb has finer steps.

function stepped(slider, direction) {
  const before = fromSlider(slider), end = direction > 0 ? 1000 : 0;
  let part = Number(slider.value);
  while (part !== end && fromSlider(slider) === before) slider.value = part += direction;
  return fromSlider(slider) !== before;
}

function toSlider(slider) {
  const low = Number(slider.dataset.low), high = Number(slider.dataset.high);
  const value = Math.min(high, Math.max(low, Number(document.getElementById(slider.dataset.for).value)));
  if (Number.isFinite(value)) {
    const part = "log" in slider.dataset ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
    slider.value = Math.round(1000 * part);
  }
}

function address() {
  const left = (name, value) => value === "" && form.elements.namedItem(name).dataset.blank !== undefined;
  const pairs = [...new FormData(form)].filter(([name, value]) => !left(name, value));
  return `${form.getAttribute("action")}?${new URLSearchParams(pairs)}`;
}

function asked(settled) {
  const now = address();
  if (now !== location.pathname + location.search) history[editing ? "replaceState" : "pushState"](null, "", now);
  editing = !settled;
  htmx.trigger(form, "asked");
}

if (form) {
  for (const slider of form.querySelectorAll(".slider")) {
    slider.hidden = false;
    toSlider(slider);
  }
  shown();
  let last = address(), waiting = 0;
  const changed = (settled) => {
    clearTimeout(waiting);
    const now = address();
    if (now === last && !(settled && editing)) return;
    if (now === last) { editing = false; return; }
    last = now;
    asked(settled);
  };
  form.addEventListener("input", (event) => {
    if (event.target.classList.contains("slider")) {
      document.getElementById(event.target.dataset.for).value = fromSlider(event.target);
    } else {
      const slider = form.querySelector(`.slider[data-for="${event.target.id}"]`);
      if (slider) toSlider(slider);
    }
    shown();
    clearTimeout(waiting);
    waiting = setTimeout(() => changed(false), event.target.classList.contains("slider") ? 20 : 120);
  });
  form.addEventListener("keydown", (event) => {
    const direction = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!direction || !event.target.classList.contains("slider") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (stepped(event.target, direction)) event.target.dispatchEvent(new Event("input", { bubbles: true }));
  });
  form.addEventListener("change", () => { shown(); changed(true); });
  form.addEventListener("submit", (event) => { event.preventDefault(); changed(true); });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-choose]");
    if (!link || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    form.elements.choice.value = link.dataset.choose;
    changed(true);
  });
  const send = form.querySelector('button[type="submit"]');
  if (send) send.classList.add("needless");
  addEventListener("popstate", () => location.reload());
}

// The dry run uses the current form, and a file that is too large is not sent

document.addEventListener("htmx:configRequest", (event) => {
  const trial = event.target.closest("form[data-state]");
  if (!trial || !form) return;
  const state = address().split("?")[1];
  if (trial.elements.state) event.detail.parameters.state = state;
  else event.detail.path = `${trial.getAttribute("action").split("?")[0]}?${state}`;
});
document.addEventListener("htmx:confirm", (event) => {
  const trial = event.target.closest && event.target.closest("form[data-most]");
  if (!trial) return;
  const file = trial.elements.file.files[0], sentence = document.getElementById("file-wrong");
  const large = file && file.size > Number(trial.dataset.most);
  sentence.textContent = large ? "This file is too large to try here: at most 100 MB; metricshuffle run takes files of any size." : "";
  if (large) event.preventDefault();
});

// Answers: errors mark their fields

document.addEventListener("htmx:afterSettle", () => {
  for (const sentence of document.querySelectorAll(".wrong[id]")) {
    const box = document.getElementById(`field-${sentence.id.replace(/-wrong$/, "")}`);
    if (box) box.setAttribute("aria-invalid", sentence.textContent ? "true" : "false");
  }
  sortable();
  unfold();
});

// Sortable tables

function sortable() {
  for (const table of document.querySelectorAll("table[data-sortable]:not([data-ready])")) {
    table.dataset.ready = "yes";
    [...table.tHead.rows[0].cells].forEach((head, index) => {
      if (head.tagName !== "TH") return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") === "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => {
          const cell = row.cells[index], number = Number(cell.dataset.sort === "inf" ? Infinity : cell.dataset.sort);
          return cell.dataset.sort === undefined ? cell.textContent : number;
        };
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => (key(a) > key(b) ? 1 : key(a) < key(b) ? -1 : 0) * (down ? -1 : 1));
        table.tBodies[0].append(...rows);
      });
    });
  }
}
sortable();

// Copying

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const source = document.getElementById(button.dataset.copy);
  const text = [...source.querySelectorAll("p")].map((part) => part.textContent).join("\n\n");
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(source);
    button.textContent = "Selected: press Ctrl+C";
  }
  setTimeout(() => { button.textContent = before; }, 2500);
});

// A server that does not answer

const lost = document.getElementById("lost");

async function back() {
  try {
    const answer = await fetch("/healthz", { cache: "no-store" });
    if (!answer.ok) throw new Error();
  } catch {
    setTimeout(back, 1000);
    return;
  }
  lost.hidden = true;
  if (form) htmx.trigger(form, "asked");
}

document.addEventListener("htmx:sendError", () => {
  if (lost.hidden) {
    lost.hidden = false;
    setTimeout(back, 1000);
  }
});

document.addEventListener("htmx:responseError", (event) => {
  lost.textContent = event.detail.xhr.status === 403
    ? "The server was started again and does not know this window: open the new link that it printed."
    : "The server could not answer this, and what you see is from before. Change something to ask again; if it stays so, start metricshuffle web again.";
  lost.hidden = false;
});
document.addEventListener("htmx:afterOnLoad", (event) => {
  if (event.detail.xhr.status < 400) lost.hidden = true;
});

// The console polls, unless a form in it is open

const polled = document.querySelector("[data-poll][hx-trigger]");
if (polled) {
  setInterval(() => {
    if (!polled.querySelector("details[open]") && !document.hidden) htmx.trigger(polled, "poll");
  }, 2000);
}
