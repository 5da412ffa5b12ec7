// SPDX-License-Identifier: Apache-2.0
// Copy buttons everywhere; in a report also the keys for the next and the previous rollout.
(() => {
  const copied = (button, said) => {
    const before = button.dataset.label || (button.dataset.label = button.textContent);
    button.textContent = said;
    setTimeout(() => { button.textContent = before; }, 1500);
  };
  const select = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const selection = getSelection();
    selection.removeAllRanges();
    selection.addRange(range);
  };
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element && event.target.closest("[data-ngv-copy]");
    if (!button) return;
    const source = button.parentElement.querySelector("pre");
    try {
      await navigator.clipboard.writeText(source.textContent);
      copied(button, "Copied");
    } catch {
      select(source);
      copied(button, document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C");
    }
  });
  document.addEventListener("keydown", (event) => {
    if (!document.body.classList.contains("ngv-page") || event.ctrlKey || event.metaKey || event.altKey) return;
    const wanted = { ArrowRight: "next", j: "next", ArrowLeft: "prev", k: "prev" }[event.key];
    const link = wanted && document.querySelector(`a[rel="${wanted}"]`);
    if (link) link.click();
  });
})();
