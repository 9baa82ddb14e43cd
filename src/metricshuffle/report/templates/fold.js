// Parts that small screens show on request are open on other screens, and on paper.
const narrow = matchMedia("(max-width: 640px)");
const wanted = new Set(); // what was opened on a small screen stays open when it is drawn again
const nameOf = (part) => part.querySelector("summary").textContent.trim();

function unfold() {
  for (const part of document.querySelectorAll("details.fold")) {
    part.open = !narrow.matches || wanted.has(nameOf(part));
    part.querySelector("summary").tabIndex = narrow.matches ? 0 : -1;
  }
}

function showTarget() {
  const place = location.hash && document.getElementById(location.hash.slice(1));
  const part = place && place.querySelector("details.fold");
  if (part) part.open = true;
}

document.addEventListener("click", (event) => {
  const summary = narrow.matches && event.target.closest("details.fold > summary");
  if (summary) wanted[summary.parentElement.open ? "delete" : "add"](nameOf(summary.parentElement));
});
narrow.addEventListener("change", unfold);
addEventListener("hashchange", showTarget);
unfold();
showTarget();
