// SPDX-License-Identifier: Apache-2.0
// What the page does by itself: links, keys and fields become questions to the server, and its answer becomes the URL.
// One question at a time, so that no answer overtakes another. Runs once, as the component that carries the place is
// loaded: `element`, `trigger` and `watch` are Gradio's.

const root = document.documentElement;
const THEME = "__theme";
const PATIENCE_MS = 10_000; // after which a reader is not kept waiting for an answer that may never come

let number = 0; // of the latest question
let asked = false; // whether its answer is awaited
let late = null; // the timer of the reader's patience
let wishes = []; // what to ask after that
let pressed = []; // keys that wait for the answer, whose links they mean
let place = location.search; // the place that the page shows
let seen = ""; // what of the file it shows
let view = null; // what a change of makes a reader start at the top again
let look = null; // the timer of the next look at the file
let typed = null; // the timer of what is being typed

const ask = (question) => {
  if (question.kind !== "look") root.classList.add("ngp-busy");
  if (!asked) send(question);
  // A place makes all earlier wishes void; of wishes that change a place, the latest of each kind counts.
  else wishes = question.kind === "visit" ? [question] : [...wishes.filter(({ kind }) => kind !== question.kind), question];
};

const send = (question) => {
  number += 1;
  asked = true;
  clearTimeout(look);
  clearTimeout(late);
  late = setTimeout(onwards, PATIENCE_MS);
  trigger("input", { query: place, seen, number, ...question });
};

const onwards = () => {
  asked = false;
  if (wishes.length) send(wishes.shift());
  return asked;
};

const go = (query, { remember = false } = {}) => {
  const address = withTheme(query);
  if (remember && address !== location.search) history.pushState(null, "", address);
  ask({ query, kind: "visit" });
};

const withTheme = (query) => {
  const theme = new URLSearchParams(location.search).get(THEME);
  return theme ? `${query}&${THEME}=${encodeURIComponent(theme)}` : query;
};

const answered = () => {
  const told = element.querySelector("[data-place]")?.dataset;
  if (!told) return;
  if (Number(told.number) !== number) {
    // It came after the patience was over, and has overwritten what was answered since.
    if (!asked) go(place);
    return;
  }
  clearTimeout(late);
  ({ place, seen } = told);
  // The other parts of the page are drawn in the same frame, in no certain order.
  requestAnimationFrame(() => requestAnimationFrame(() => onwards() || shown(told)));
};

const shown = (told) => {
  const address = withTheme(place);
  if (address !== location.search) history.replaceState(null, "", address);
  if (view !== null && view !== told.view) window.scrollTo({ top: 0 });
  view = told.view;
  const field = document.getElementById("ngp-text");
  const text = new URLSearchParams(place).get("q") ?? "";
  if (field && typed === null && field.value !== text) field.value = text;
  root.dataset.ngpPlace = place;
  root.classList.remove("ngp-busy");
  pressed.shift()?.();
  if (!asked) look = setTimeout(lookAgain, Number(told.lookMs));
};

const lookAgain = () => {
  if (document.hidden) look = setTimeout(lookAgain, 1000);
  else ask({ kind: "look" });
};

// Called by the fields of the filters.
window.ngpFilter = (...values) => ask({ kind: "filter", values });

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
  typed = setTimeout(() => {
    typed = null;
    ask({ kind: "search", text: event.target.value });
  }, 150);
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
  if (asked && event.key !== "/") pressed.push(action);
  else action();
});

window.addEventListener("popstate", () => go(location.search));
watch("value", answered);
go(location.search);
