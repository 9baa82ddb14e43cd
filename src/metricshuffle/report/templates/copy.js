// Buttons that copy a text to the clipboard, or select it if the browser does not allow that.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    const text = [...source.querySelectorAll("p")].map((part) => part.textContent).join("\n\n");
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const range = document.createRange();
      range.selectNodeContents(source);
      const chosen = getSelection();
      chosen.removeAllRanges();
      chosen.addRange(range);
      done = document.execCommand("copy");
    }
    const before = button.textContent;
    button.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    setTimeout(() => {
      button.textContent = before;
    }, 2500);
  });
}
