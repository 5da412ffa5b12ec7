// SPDX-License-Identifier: Apache-2.0
// What the page does by itself: links, keys and fields become questions to the server, and its answer becomes the URL.
// One question at a time, so that no answer overtakes another. Runs once, as the component that carries the place is
// loaded: `element`, `trigger` and `watch` are Gradio's.

const root = document.documentElement;
const THEME = "__theme";
const PATIENCE_MS = 3000; // after which a reader is not kept waiting for an answer that may never come

let asked = null; // when the question was sent that has no answer yet
let next = null; // what to ask after that: the latest wish counts
let pressed = []; // keys that wait for the answer, whose links they mean
let place = location.search; // the place that the page shows
let seen = ""; // what of the file it shows
let view = null; // what a change of makes a reader start at the top again
let look = null; // the timer of the next look at the file

const ask = (question) => {
  if (asked !== null && performance.now() - asked < PATIENCE_MS) {
    next = question;
    return;
  }
  asked = performance.now();
  clearTimeout(look);
  if (question.kind !== "look") root.classList.add("ngp-busy");
  trigger("input", { query: place, seen, values: null, ...question });
};

const go = (query, { remember = false, kind = "visit" } = {}) => {
  const address = withTheme(query);
  if (remember && address !== location.search) history.pushState(null, "", address);
  ask({ query, kind });
};

const withTheme = (query) => {
  const theme = new URLSearchParams(location.search).get(THEME);
  return theme ? `${query}&${THEME}=${encodeURIComponent(theme)}` : query;
};

const answered = () => {
  const told = element.querySelector("[data-place]")?.dataset;
  if (!told) return;
  ({ place, seen } = told);
  // The other parts of the page are drawn in the same frame, in no certain order.
  requestAnimationFrame(() => requestAnimationFrame(() => {
    asked = null;
    if (next !== null) {
      const question = next;
      next = null;
      ask(question);
      return;
    }
    const address = withTheme(place);
    if (address !== location.search) history.replaceState(null, "", address);
    if (view !== null && view !== told.view) window.scrollTo({ top: 0 });
    view = told.view;
    root.dataset.ngpPlace = place;
    root.classList.remove("ngp-busy");
    pressed.shift()?.();
    if (asked === null) look = setTimeout(lookAgain, Number(told.lookMs));
  }));
};

const lookAgain = () => {
  if (document.hidden) look = setTimeout(lookAgain, 1000);
  else ask({ kind: "look" });
};

// Called by the fields of the filters.
window.ngpFilter = (...values) => ask({ kind: "filter", values });

let typed;
const search = (text) => {
  const query = new URLSearchParams(place);
  query.delete("page");
  text ? query.set("q", text) : query.delete("q");
  go(`?${query}`, { kind: "typed" });
};

const typing = (target) => target.closest("input, textarea, select, [contenteditable], [role=listbox]");
const follow = (...names) => {
  const link = names.map((name) => document.getElementById(name)).find(Boolean);
  if (link) go(link.getAttribute("href"), { remember: true });
};
const onward = () => follow("ngp-next", "ngp-next-page");
const back = () => follow("ngp-previous", "ngp-previous-page");
const KEYS = {
  j: onward,
  ArrowRight: onward,
  k: back,
  ArrowLeft: back,
  "/": () => document.getElementById("ngp-text")?.focus(),
};

const said = (button, text) => {
  const before = button.textContent;
  button.textContent = text;
  setTimeout(() => (button.textContent = before), 1200);
};

const CLICKED = {
  "a[href^='?']": (link) => go(link.getAttribute("href"), { remember: true }),
  "tr[data-href]": (row) => getSelection().toString() || go(row.dataset.href, { remember: true }),
  "[data-theme-switch]": () => {
    const query = new URLSearchParams(location.search);
    query.set(THEME, document.body.classList.contains("dark") ? "light" : "dark");
    location.search = query.toString();
  },
  "[data-copy-link]": (button) =>
    navigator.clipboard?.writeText(location.href).then(() => said(button, "Copied")),
  "[data-first-difference]": () =>
    document.getElementById("ngv-first-difference")?.scrollIntoView({ behavior: "smooth", block: "center" }),
};

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  for (const [selector, action] of Object.entries(CLICKED)) {
    const target = event.target.closest(selector);
    if (target) {
      event.preventDefault();
      action(target);
      return;
    }
  }
});

document.addEventListener("input", (event) => {
  if (event.target.id !== "ngp-text") return;
  clearTimeout(typed);
  typed = setTimeout(() => search(event.target.value), 150);
});

document.addEventListener("keydown", (event) => {
  if (event.metaKey || event.ctrlKey || event.altKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  // While an answer is awaited, the links of the page lead to where it is going already.
  if (asked !== null && event.key !== "/") pressed.push(action);
  else action();
});

window.addEventListener("popstate", () => go(location.search));
watch("value", answered);
go(location.search);
