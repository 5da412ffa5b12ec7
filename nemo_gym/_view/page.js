// SPDX-License-Identifier: Apache-2.0
// What the page does by itself: in-page links and keys become places, and the place becomes the URL.
// Runs once, as the component that carries the place is loaded: `element`, `trigger` and `watch` are Gradio's.

const root = document.documentElement;
const THEME = "__theme";

const go = (query, { remember = false, typed = false } = {}) => {
  const address = withTheme(query);
  if (remember && address !== location.search) history.pushState(null, "", address);
  root.classList.add("ngp-busy");
  trigger("input", { query, typed });
};

const withTheme = (query) => {
  const theme = new URLSearchParams(location.search).get(THEME);
  return theme ? `${query}&${THEME}=${encodeURIComponent(theme)}` : query;
};

let shown = null;
const arrived = () => {
  const { place, view } = element.querySelector("[data-place]")?.dataset ?? {};
  if (place === undefined) return;
  const address = withTheme(place);
  if (address !== location.search) history.replaceState(null, "", address);
  if (shown !== null && shown !== view) window.scrollTo({ top: 0 });
  shown = view;
  // The other parts of the page are drawn in the same frame, in no certain order.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    root.dataset.ngpPlace = place;
    root.classList.remove("ngp-busy");
    const next = waiting;
    waiting = null;
    next?.();
  }));
};

let waiting = null;
const act = (action) => {
  // A link that is about to be replaced leads to where the page is already.
  if (root.classList.contains("ngp-busy")) waiting = action;
  else action();
};

const typing = (target) => target.closest("input, textarea, select, [contenteditable], [role=listbox]");
const press = (...names) => names.map((name) => document.getElementById(name)).find(Boolean)?.click();
const KEYS = {
  j: () => press("ngp-next", "ngp-next-page"),
  ArrowRight: () => press("ngp-next", "ngp-next-page"),
  k: () => press("ngp-previous", "ngp-previous-page"),
  ArrowLeft: () => press("ngp-previous", "ngp-previous-page"),
  "/": () => document.getElementById("ngp-text")?.focus(),
};

let awaited;
const search = (text) => {
  const query = new URLSearchParams(root.dataset.ngpPlace);
  query.delete("page");
  text ? query.set("q", text) : query.delete("q");
  go(`?${query}`, { typed: true });
};

const said = (button, text) => {
  const before = button.textContent;
  button.textContent = text;
  setTimeout(() => (button.textContent = before), 1200);
};

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const target = event.target.closest("a[href^='?'], [data-theme-switch], [data-copy-link], [data-first-difference], tr[data-href]");
  if (!target) return;
  if (target.matches("a")) {
    event.preventDefault();
    go(target.getAttribute("href"), { remember: true });
  } else if (target.matches("tr")) {
    if (!getSelection().toString()) go(target.dataset.href, { remember: true });
  } else if (target.matches("[data-theme-switch]")) {
    const query = new URLSearchParams(location.search);
    query.set(THEME, document.body.classList.contains("dark") ? "light" : "dark");
    location.search = query.toString();
  } else if (target.matches("[data-copy-link]")) {
    navigator.clipboard?.writeText(location.href).then(() => said(target, "Copied"));
  } else {
    document.getElementById("ngv-first-difference")?.scrollIntoView({ behavior: "smooth", block: "center" });
  }
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "ngp-text") return;
  clearTimeout(awaited);
  awaited = setTimeout(() => search(event.target.value), 150);
});

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = KEYS[event.key];
  if (action) {
    event.preventDefault();
    act(action);
  }
});

window.addEventListener("popstate", () => go(location.search));
watch("value", arrived);
go(location.search);
