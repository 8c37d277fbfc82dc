"use strict";
const selectAll = (selector, root = document) => [...root.querySelectorAll(selector)];
const select = (selector, root = document) => root.querySelector(selector);
const pages = selectAll("article");
const pageNumbers = pages.map((page) => page.dataset.page);
const cards = selectAll(".element");
const cardsById = new Map(cards.map((card) => [card.dataset.element, card]));
const rectsById = new Map(); // an element may have several boxes
for (const rect of selectAll("rect")) {
  const id = rect.dataset.element;
  rectsById.set(id, [...(rectsById.get(id) ?? []), rect]);
}
const doubtLinks = selectAll("#doubts a");
const queryInput = select("#query");
const doubtfulOnly = select("#doubtful");
const MAX_HITS = 300; // longer lists of matches are cut
let currentPage = null;
let selectedCard = null;
let stops = doubtLinks; // what "next" and "previous" visit: the cards that match the filter, or what is to be checked
let stopIndex = -1;

function showPage(page) {
  if (currentPage === page || !page) return;
  currentPage?.classList.remove("now");
  page.classList.add("now");
  currentPage = page;
  for (const link of selectAll("#pages a")) link.classList.toggle("now", link.dataset.page === page.dataset.page);
  select("#pages a.now")?.scrollIntoView({ block: "nearest" });
  if (selectedCard && !page.contains(selectedCard)) selectCard(null);
  select(".text", page).scrollTop = 0;
  select(".picture", page).scrollTop = 0;
}

// `clicked` is "card" or "box": what the user clicked is in view already and is not scrolled to.
function selectCard(card, clicked = null) {
  if (selectedCard) {
    selectedCard.classList.remove("now");
    for (const rect of rectsById.get(selectedCard.dataset.element) ?? []) rect.classList.remove("now");
  }
  selectedCard = card;
  if (!card) return markStop(null);
  showPage(card.closest("article"));
  arriveAt(card.id);
  card.classList.remove("filtered-out"); // show a selected element even if it does not match the filter
  card.classList.add("now");
  const rects = rectsById.get(card.dataset.element) ?? [];
  for (const rect of rects) rect.classList.add("now");
  if (clicked !== "box" && rects.length) rects[0].scrollIntoView({ block: "center" });
  // On narrow screens the card and the picture scroll together, and the card is more important.
  if (clicked !== "card") card.scrollIntoView({ block: "center" });
}

function arriveAt(id) {
  history.replaceState(null, "", "#" + id);
  markStop(id);
}

const idOf = (stop) => stop.dataset.element ?? "page-" + stop.dataset.page;

// Mark the place in the list that is shown, and say which of the stops it is.
function markStop(id) {
  const index = stops.findIndex((stop) => idOf(stop) === id);
  if (index >= 0) stopIndex = index;
  for (const link of selectAll("#doubts a, #hits a")) {
    link.classList.toggle("now", idOf(link) === id);
    if (idOf(link) === id) link.scrollIntoView({ block: "nearest" });
  }
  const count = index >= 0 ? `${index + 1} of ${stops.length}` : stops.length;
  const hitPages = new Set(stops.map((stop) => stop.closest("article"))).size;
  const found = stops === doubtLinks ? `${count} to check` : `hit ${count}, on ${hitPages} of ${pages.length} pages`;
  select("#found").textContent = stops.length ? found : stops === doubtLinks ? "" : "no hits";
  for (const button of selectAll("#previous, #next")) button.hidden = !stops.length;
}

// The focus moves to where the user goes by link or key, so that a screen reader goes there, too.
function goToStop(step, focus = false) {
  if (!stops.length) return;
  const isBeforeFirst = stopIndex < 0 && step < 0;
  stopIndex = isBeforeFirst ? stops.length - 1 : (stopIndex + step + stops.length) % stops.length;
  followLink(stops[stopIndex], focus);
}

function turnPage(step) {
  const index = pageNumbers.indexOf(currentPage?.dataset.page);
  showPage(pages[Math.min(Math.max(index + step, 0), pages.length - 1)]);
  if (currentPage) arriveAt(currentPage.id);
}

function moveSelection(step) {
  const visible = selectAll(".element:not(.filtered-out)", currentPage ?? document);
  const index = selectedCard ? visible.indexOf(selectedCard) : step > 0 ? -1 : visible.length;
  selectCard(visible[Math.min(Math.max(index + step, 0), visible.length - 1)] ?? null);
}

function followLink(link, focus = false) {
  const card = cardsById.get(link.dataset.element);
  if (card) selectCard(card);
  else {
    selectCard(null);
    showPage(pages[pageNumbers.indexOf(link.dataset.page)]);
    arriveAt(currentPage.id);
    select(".about", currentPage).scrollIntoView({ block: "center" });
  }
  if (focus) (card ?? select(".about", currentPage)).focus({ preventScroll: true });
}

let cardTexts = null; // lower-case text of each card without our remarks, computed on first use
function applyFilter() {
  cardTexts ??= new Map(cards.map((card) => [card, readText(card).toLowerCase()]));
  const words = queryInput.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = new Set(selectAll('.category[aria-pressed="true"]').map((button) => button.dataset.category));
  const isActive = words.length > 0 || wanted.size > 0 || doubtfulOnly.checked;
  const hits = [];
  for (const card of cards) {
    const matches =
      (!wanted.size || wanted.has(card.dataset.category)) &&
      (!doubtfulOnly.checked || card.classList.contains("doubted")) &&
      words.every((word) => cardTexts.get(card).includes(word));
    card.classList.toggle("filtered-out", !matches);
    for (const rect of rectsById.get(card.dataset.element) ?? []) rect.classList.toggle("filtered-out", !matches);
    if (matches) hits.push(card);
  }
  const hitPages = new Set(hits.map((card) => card.closest("article").dataset.page));
  for (const link of selectAll("#pages a")) link.classList.toggle("no-hit", isActive && !hitPages.has(link.dataset.page));
  showHits(isActive ? hits : null);
  stops = isActive ? hits : doubtLinks;
  stopIndex = -1;
  if (isActive) selectCard(hits[0] ?? null);
  else markStop(selectedCard?.id ?? null);
}

function readText(card) {
  const copy = card.cloneNode(true);
  for (const remark of selectAll(".alert, .note", copy)) remark.remove();
  return copy.textContent;
}

// Replace the list of doubtful elements by the hits; null brings it back.
function showHits(hits) {
  select("#hits").hidden = hits === null;
  select("#doubts").hidden = hits !== null;
  if (hits === null) return;
  select("#hits h2 b").textContent = hits.length;
  select("#hits ol").replaceChildren(...hits.slice(0, MAX_HITS).map(createHit));
}

function createHit(card) {
  const link = document.createElement("a");
  link.href = "#" + card.id;
  link.dataset.element = card.id;
  const page = document.createElement("b");
  page.textContent = `p ${card.closest("article").dataset.page} `;
  const cells = selectAll("td, th", card).slice(0, 12).map((cell) => cell.textContent);
  const text = select(".prose, .formula, pre", card)?.textContent ?? (cells.join(" · ") || card.id);
  link.append(page, text.trim().replace(/\s+/g, " ").slice(0, 90));
  const item = document.createElement("li");
  item.append(link);
  return item;
}

function clearFilter() {
  queryInput.value = "";
  doubtfulOnly.checked = false;
  for (const button of selectAll(".category")) button.setAttribute("aria-pressed", "false");
  applyFilter();
  selectCard(null);
}

const keyActions = {
  ArrowRight: () => turnPage(1), PageDown: () => turnPage(1), ArrowLeft: () => turnPage(-1), PageUp: () => turnPage(-1),
  Home: () => turnPage(-pages.length), End: () => turnPage(pages.length),
  ArrowDown: () => moveSelection(1), ArrowUp: () => moveSelection(-1),
  n: () => goToStop(1, true), N: () => goToStop(-1, true),
  "/": () => queryInput.focus(), d: () => doubtfulOnly.click(), Escape: clearFilter, "?": () => select("#keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || select("#keys").open) return;
  const isTyping = event.target === queryInput;
  if (isTyping && event.key === "Enter") goToStop(event.shiftKey ? -1 : 1);
  if (isTyping && event.key !== "Escape") return;
  const action = keyActions[event.key];
  if (!action) return;
  event.preventDefault();
  if (isTyping) queryInput.blur();
  action();
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-element], a[data-page]");
  if (link) {
    event.preventDefault();
    followLink(link, true);
  } else if (event.target.matches("rect")) selectCard(cardsById.get(event.target.dataset.element), "box");
  else if (event.target.closest(".element") && !event.target.closest("summary, a")) selectCard(event.target.closest(".element"), "card");
});
for (const button of selectAll(".category")) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-pressed", button.getAttribute("aria-pressed") === "false");
    applyFilter();
    button.scrollIntoView({ block: "nearest", inline: "start" }); // on a phone, the row of buttons scrolls
  });
}
queryInput.addEventListener("input", applyFilter);
doubtfulOnly.addEventListener("change", applyFilter);
select("#previous").addEventListener("click", () => goToStop(-1));
select("#next").addEventListener("click", () => goToStop(1));
select("#help").addEventListener("click", () => select("#keys").showModal());
select("#theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = getComputedStyle(root).getPropertyValue("color-scheme") === "dark" ||
    (root.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  root.style.colorScheme = isDark ? "light" : "dark";
});

document.body.classList.add("paged"); // without this script all pages are shown below each other
const target = decodeURIComponent(location.hash.slice(1));
const targetPage = cardsById.get(target) ?? pages.find((page) => page.id === target);
if (targetPage) followLink(targetPage);
else if (stops.length) goToStop(1);
else showPage(pages[0]);
