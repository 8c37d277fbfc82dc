"use strict";
const all = (query, within = document) => [...within.querySelectorAll(query)];
const one = (query, within = document) => within.querySelector(query);
const pages = all("article");
const order = pages.map((page) => page.dataset.page);
const cards = all(".element");
const byId = new Map(cards.map((card) => [card.dataset.element, card]));
const boxes = new Map();
for (const rect of all("rect")) {
  const id = rect.dataset.element;
  boxes.set(id, [...(boxes.get(id) ?? []), rect]);
}
const doubts = all("#doubts a");
const query = one("#query");
const onlyDoubtful = one("#doubtful");
const HITS = 300; // entries of a list that a person reads
let now = null; // page shown
let chosen = null; // element chosen

function show(page) {
  if (now === page || !page) return;
  now?.classList.remove("now");
  page.classList.add("now");
  now = page;
  for (const link of all("#pages a")) link.classList.toggle("now", link.dataset.page === page.dataset.page);
  one("#pages a.now")?.scrollIntoView({ block: "nearest" });
  if (chosen && !page.contains(chosen)) choose(null);
  one(".text", page).scrollTop = 0;
  one(".picture", page).scrollTop = 0;
}

function choose(card, from = null) {
  if (chosen) {
    chosen.classList.remove("now");
    for (const rect of boxes.get(chosen.dataset.element) ?? []) rect.classList.remove("now");
  }
  chosen = card;
  for (const link of all("#doubts a, #hits a")) link.classList.toggle("now", !!card && link.dataset.element === card.id);
  if (!card) return;
  show(card.closest("article"));
  card.classList.remove("dim"); // it was asked for, whatever the filter says
  card.classList.add("now");
  const own = boxes.get(card.dataset.element) ?? [];
  for (const rect of own) rect.classList.add("now");
  if (from !== "card") card.scrollIntoView({ block: "center" });
  if (from !== "box" && own.length) own[0].scrollIntoView({ block: "center" });
  history.replaceState(null, "", "#" + card.id);
}

function turn(step) {
  const place = order.indexOf(now?.dataset.page);
  show(pages[Math.min(Math.max(place + step, 0), pages.length - 1)]);
  if (now) history.replaceState(null, "", "#" + now.id);
}

function walk(step) {
  const here = all(".element:not(.dim)", now ?? document);
  const place = chosen ? here.indexOf(chosen) : step > 0 ? -1 : here.length;
  choose(here[Math.min(Math.max(place + step, 0), here.length - 1)] ?? null);
}

let doubt = -1;
function nextDoubt(step) {
  if (!doubts.length) return;
  doubt = (doubt + step + doubts.length) % doubts.length;
  follow(doubts[doubt]);
}

function follow(link) {
  if (link.dataset.element) choose(byId.get(link.dataset.element));
  else {
    choose(null);
    show(pages[order.indexOf(link.dataset.page)]);
    history.replaceState(null, "", "#" + now.id);
  }
}

let words = null; // of each card, lower case; made when first asked for
function filter() {
  words ??= new Map(cards.map((card) => [card, card.textContent.toLowerCase()]));
  const asked = query.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const off = new Set(all('.category[aria-pressed="false"]').map((button) => button.dataset.category));
  const active = asked.length > 0 || off.size > 0 || onlyDoubtful.checked;
  const hits = [];
  for (const card of cards) {
    const fits =
      !off.has(card.dataset.category) &&
      (!onlyDoubtful.checked || card.classList.contains("doubted")) &&
      asked.every((word) => words.get(card).includes(word));
    card.classList.toggle("dim", !fits);
    for (const rect of boxes.get(card.dataset.element) ?? []) rect.classList.toggle("dim", !fits);
    if (fits) hits.push(card);
  }
  const kept = new Set(hits.map((card) => card.closest("article").dataset.page));
  for (const link of all("#pages a")) link.classList.toggle("miss", active && !kept.has(link.dataset.page));
  one("#found").textContent = active ? `${hits.length} of ${cards.length} elements, ${kept.size} of ${pages.length} pages` : "";
  list(active ? hits : null);
}

function list(hits) {
  one("#hits").hidden = hits === null;
  one("#doubts").hidden = hits !== null;
  if (hits === null) return;
  one("#hits h2 b").textContent = hits.length;
  one("#hits ol").replaceChildren(...hits.slice(0, HITS).map(entry));
}

function entry(card) {
  const link = document.createElement("a");
  link.href = "#" + card.id;
  link.dataset.element = card.id;
  const page = document.createElement("b");
  page.textContent = `p ${card.closest("article").dataset.page} `;
  const cells = all("td, th", card).slice(0, 12).map((cell) => cell.textContent);
  const text = one(".prose, .formula, pre", card)?.textContent ?? (cells.join(" · ") || card.id);
  link.append(page, text.trim().replace(/\s+/g, " ").slice(0, 90));
  const item = document.createElement("li");
  item.append(link);
  return item;
}

function clear() {
  query.value = "";
  onlyDoubtful.checked = false;
  for (const button of all(".category")) button.setAttribute("aria-pressed", "true");
  filter();
  choose(null);
}

const keys = {
  ArrowRight: () => turn(1), PageDown: () => turn(1), ArrowLeft: () => turn(-1), PageUp: () => turn(-1),
  Home: () => turn(-pages.length), End: () => turn(pages.length),
  ArrowDown: () => walk(1), ArrowUp: () => walk(-1),
  n: () => nextDoubt(1), N: () => nextDoubt(-1),
  "/": () => query.focus(), d: () => onlyDoubtful.click(), Escape: clear, "?": () => one("#keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || one("#keys").open) return;
  const typing = event.target === query;
  if (typing && event.key !== "Escape") return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  if (typing) query.blur();
  act();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-element], a[data-page]");
  if (link) {
    event.preventDefault();
    follow(link);
  } else if (event.target.matches("rect")) choose(byId.get(event.target.dataset.element), "box");
  else if (event.target.closest(".element") && !event.target.closest("summary, a")) choose(event.target.closest(".element"), "card");
});
for (const button of all(".category")) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false");
    filter();
  });
}
query.addEventListener("input", filter);
onlyDoubtful.addEventListener("change", filter);
one("#help").addEventListener("click", () => one("#keys").showModal());
one("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = getComputedStyle(root).getPropertyValue("color-scheme") === "dark" ||
    (root.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.style.colorScheme = dark ? "light" : "dark";
});

document.body.classList.add("paged");
const asked = decodeURIComponent(location.hash.slice(1));
if (byId.has(asked)) choose(byId.get(asked));
else show(pages.find((page) => page.id === asked) ?? pages[0]);
