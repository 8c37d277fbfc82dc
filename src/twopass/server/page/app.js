// The page of `twopass serve`: sends files, follows all jobs by server-sent events, and opens what was read.
import { SILENCE_MS, readEvents } from "/events.js";

const select = (selector, root = document) => root.querySelector(selector);
// What can be saved: the name on the page, and the file. The review is always made, because the page shows it.
const FORMATS = {
  markdown: ["Markdown", "document.md"],
  docjson: ["JSON", "document.json"],
  html: ["HTML", "document.html"],
  chunks: ["Chunks", "chunks.jsonl"],
  docling: ["Docling", "docling.json"],
  mineru: ["MinerU", "content_list.json"],
  pdf: ["searchable PDF", "document.pdf"],
  zip: ["ZIP", "document.zip"],
};
const CHOSEN_FORMATS = ["markdown", "docjson", "zip"]; // until the user chooses others
const WITH_FURNITURE = ["markdown", "html", "chunks", "zip"]; // the formats that the option changes
const MODES = {
  auto: "auto, for each page", tiny: "tiny, 512 pixels", small: "small, 640 pixels", base: "base, 1024 pixels",
  large: "large, 1280 pixels", gundam: "gundam, page and tiles",
};
const RETRY_MS = 2000; // after a lost connection
const UNDO_MS = 10000; // a deletion can be undone for so long
const MAX_TILES = 500; // a tile for each page of longer documents would be too many
const MAX_MISSING_PICTURES = 3; // then the job has none
const MAX_PROBLEMS = 8;
const ANNOUNCED_PERCENT = 25;
const STATES = {
  queued: "waiting", running: "reading", interrupted: "interrupted", done: "done", failed: "failed", cancelled: "cancelled",
};
const KEY = "twopass-key";
const REVIEW = "#review-"; // and the job's id: the browser's Back closes the review
const jobs = select("#jobs");
const cards = new Map(); // by the id of their job
const leaving = new Set(); // cards whose deletion can be undone
let maxBytes = Infinity;
let askingForKey = null;
let canShare = "SharedWorker" in window;
let sending = 0; // files that are sent or wait for that

// ---- requests ---------------------------------------------------------------------------------

function storedKey() {
  return sessionStorage.getItem(KEY);
}

function headers() {
  const key = storedKey();
  return key ? { "X-API-Key": key } : {};
}

// Ask for the key, once for all requests that were refused with `refusedKey`; they are sent again afterwards. A request
// that was sent before another key was entered is sent again at once.
function askForKey(refusedKey) {
  if (!askingForKey && storedKey() !== refusedKey) return null;
  askingForKey ??= new Promise((resolve) => {
    const dialog = select("#ask");
    select("#wrong").textContent = storedKey() ? "That key is wrong." : "";
    dialog.oncancel = (event) => event.preventDefault();
    dialog.onclose = () => {
      sessionStorage.setItem(KEY, select("#key").value.trim());
      select("#key").value = "";
      askingForKey = null;
      showKey();
      resolve();
    };
    dialog.showModal();
  });
  return askingForKey;
}

function showKey() {
  select("#forget").hidden = !storedKey();
}

async function call(path, options = {}) {
  for (;;) {
    const key = storedKey();
    const response = await fetch(path, { ...options, headers: { ...options.headers, ...headers() } });
    if (response.status !== 401) return response;
    await askForKey(key);
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Send one file; resolves to {status, body, retryAfter}. Only XMLHttpRequest reports how much was sent.
function sendFile(file, input, card) {
  return new Promise((resolve) => {
    const request = new XMLHttpRequest();
    const form = new FormData();
    form.append("job", JSON.stringify(input));
    form.append("file", file, file.name);
    request.open("POST", "/v1/jobs");
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => card.showSending(event.loaded / Math.max(event.total, 1));
    request.onloadend = () => {
      let body = null;
      try {
        body = JSON.parse(request.responseText);
      } catch {
        body = { code: "CONNECTION", message: "the connection to the server was lost; send the file again" };
      }
      resolve({ status: request.status, body, retryAfter: Number(request.getResponseHeader("Retry-After")) });
    };
    card.abort = () => request.abort();
    request.send(form);
  });
}

// ---- one card for each document -----------------------------------------------------------------

class Card {
  constructor(name, created = null) {
    this.element = select("#card").content.firstElementChild.cloneNode(true);
    this.job = null;
    this.abort = null;
    this.isAborted = false;
    this.chosenPage = null; // the page whose text the user wants to see
    this.newest = null; // the page whose text is fetched next
    this.missingPictures = 0;
    this.announcedPercent = 0;
    this.announcedState = null;
    this.find(".name").textContent = name;
    this.find(".name").title = name;
    this.find("progress").setAttribute("aria-label", name);
    for (const action of ["again", "cancel", "delete", "review", "undo"]) this.find(`.${action}`).setAttribute("aria-describedby", this.nameId());
    this.find(".cancel").onclick = () => this.cancel();
    this.find(".delete").onclick = () => this.removeSoon();
    this.find(".undo").onclick = () => this.undo();
    this.find(".leaving span").textContent = `${name} is deleted in ${UNDO_MS / 1000} seconds.`;
    this.find(".password").onsubmit = (event) => {
      event.preventDefault();
      const input = this.find(".password input");
      const password = input.value;
      input.value = "";
      this.resume(password);
    };
    this.find(".results").append(...Object.values(FORMATS).map(([label, file]) => makeSaveLink(label, file)));
    this.find(".review").onclick = () => {
      location.hash = REVIEW + this.job.id;
    };
    this.find(".tiles").onkeydown = moveInToolbar;
    this.setState("queued", "sending");
    this.place(created);
    showEmptiness();
  }

  // The newest is first: a file that is sent now, before jobs that the server lists later.
  place(created) {
    const isOlder = ({ dataset }) => !created || (dataset.created && dataset.created <= created);
    jobs.insertBefore(this.element, [...jobs.children].find(isOlder) ?? null);
  }

  nameId() {
    return (this.find(".name").id ||= `name-${(Card.count = (Card.count ?? 0) + 1)}`);
  }

  find(selector) {
    return select(selector, this.element);
  }

  setState(state, label = STATES[state]) {
    this.element.className = `job ${state}`;
    this.find(".state").textContent = label;
  }

  showSending(share) {
    this.find("progress").value = 100 * share;
    this.find(".detail").textContent = share < 1 ? `sent ${Math.floor(100 * share)} %` : "stored on the server …";
  }

  showWaiting(seconds) {
    this.find("progress").removeAttribute("value");
    this.find(".detail").textContent = `the server is busy; sent again in ${seconds} s`;
  }

  async send(file, input) {
    if (file.size > maxBytes) {
      const message = `${formatBytes(file.size)}; this server takes files of up to ${formatBytes(maxBytes)}`;
      return this.fail({ code: "SOURCE_TOO_LARGE", message });
    }
    while (!this.isAborted) {
      const key = storedKey();
      const { status, body, retryAfter } = await sendFile(file, input, this);
      if (this.isAborted) return;
      if (status === 401) await askForKey(key);
      else if (retryAfter) {
        this.showWaiting(retryAfter);
        await pause(1000 * retryAfter);
      } else if (status === 200 || status === 202) return this.adopt(body);
      else {
        if (["CONNECTION", "REQUEST_TIMEOUT"].includes(body.code)) this.offerAgain(file, input);
        return this.fail(body);
      }
    }
  }

  offerAgain(file, input) {
    this.find(".again").hidden = false;
    this.find(".again").onclick = () => {
      this.setState("queued", "sending");
      for (const name of [".again", ".failure", ".delete"]) this.find(name).hidden = true;
      for (const name of [".reading", ".cancel"]) this.find(name).hidden = false;
      this.find(".cancel").focus();
      track(() => this.send(file, input));
    };
  }

  // The file has become a job, which the events may have announced already.
  adopt(job) {
    const card = cards.get(job.id) ?? this;
    if (card === this) {
      cards.set(job.id, this);
      this.show(job);
    } else {
      this.element.replaceWith(card.element);
    }
    if (card.isFinal) card.announceState(); // no event has, if it ended at once
  }

  get isActive() {
    return ["queued", "running"].includes(this.job?.state);
  }

  get isFinal() {
    return ["done", "failed", "cancelled"].includes(this.job?.state);
  }

  show(job) {
    const before = this.job;
    if (before && JSON.stringify(before) === JSON.stringify(job)) return;
    this.job = job;
    this.element.dataset.created = job.created;
    this.setState(job.state);
    this.showProgress(job.progress);
    const isFinal = this.isFinal;
    this.find(".reading").hidden = isFinal;
    this.find(".cancel").hidden = !this.isActive;
    this.find(".delete").hidden = this.isActive;
    const needsPassword = job.links.resume && job.error?.code === "ENCRYPTED";
    this.find(".again").hidden = !job.links.resume || needsPassword;
    this.find(".again").onclick = () => this.resume();
    this.find(".password").hidden = !needsPassword;
    this.find(".failure").hidden = true;
    if (!isFinal) for (const name of [".results", ".lost", ".problems"]) this.find(name).hidden = true; // of an earlier run
    if (job.state === "interrupted") this.find(".detail").textContent = job.error.message;
    else if (needsPassword) this.askForPassword(job.error);
    else if (job.error) this.showError(job.error);
    if (isFinal && !this.chosenPage) this.hideDraft();
    if (isFinal) this.find(".tiles").scrollTop = 0;
    // The files of a job have other addresses after a restart of the server.
    const isChanged = before && (before.state !== job.state || before.links.files !== job.links.files);
    if (!before || (isFinal && isChanged)) visible.observe(this.element);
    if (before) this.announceChange(before);
  }

  announceChange(before) {
    const percent = this.job.progress?.percent ?? 0;
    if (before.state !== this.job.state) {
      this.announceState();
    } else if (this.isActive && percent >= this.announcedPercent + ANNOUNCED_PERCENT) {
      this.announcedPercent = percent - (percent % ANNOUNCED_PERCENT);
      announce(`${this.job.name}: ${this.find(".detail").textContent}`);
    }
  }

  announceState() {
    if (this.announcedState === this.job.state) return; // a screen reader would say it again
    this.announcedState = this.job.state;
    announce(`${this.job.name}: ${STATES[this.job.state]}${this.job.error ? `, ${this.job.error.message}` : ""}`);
  }

  // Fetch the pages that were read, and the result if there is one, once the card is on the screen.
  async load() {
    const { self, pages } = this.job.links;
    const answers = await Promise.all([call(self), call(pages)]);
    if (!answers.every((answer) => answer.ok)) return; // it was deleted
    const job = await answers[0].json();
    if (job.result) this.showResult(job.result, job.lost);
    for (const page of await answers[1].json()) this.addPage(page);
    showReview();
  }

  showProgress(progress) {
    const bar = this.find("progress");
    if (!progress || !progress.pages_total) {
      bar.removeAttribute("value");
      this.find(".detail").textContent = this.job.state === "queued" ? "waiting for its turn" : "opening the document";
      return;
    }
    bar.value = progress.percent;
    const left = progress.eta_s ? ` · about ${formatSeconds(progress.eta_s)} left` : "";
    const parts = progress.parts_total ? `, ${progress.parts_done} of ${progress.parts_total} parts` : "";
    const phase = progress.phase === "assembling" ? ` · writing the document${parts}` : "";
    this.find(".detail").textContent = `${progress.pages_done} of ${progress.pages_total} pages${phase}${left}`;
  }

  // The file could not be sent.
  fail(error) {
    this.setState("failed");
    this.find(".reading").hidden = true;
    this.find(".cancel").hidden = true;
    this.find(".delete").hidden = false;
    this.showError(error);
    announce(`${this.find(".name").textContent}: ${error.message}`);
  }

  showError(error) {
    this.find(".failure").hidden = false;
    this.find(".failure strong").textContent = error.code;
    this.find(".failure span").textContent = error.message;
  }

  // The password is used for this job, and kept nowhere on the page.
  askForPassword(error) {
    this.setState("failed", "needs its password");
    this.find(".password span").textContent = `${capitalize(error.message.split(";")[0])}.`;
  }

  showResult(result, lost) {
    if (!this.find(".password").hidden) return;
    this.setState(this.job.state);
    const documents = result.documents ?? [];
    if (result.status === "partial_success") {
      this.element.classList.add("partial");
      this.find(".state").textContent = "partly read";
    }
    const counts = Object.entries(documents[0]?.pages ?? {}).map(([state, count]) => `${count} ${state.replace("_", " ")}`);
    if (counts.length) this.find(".state").textContent += ` · ${counts.join(", ")}`;
    if (documents.length > 1) this.find(".state").textContent += ` · the first of ${documents.length} documents`;
    const served = Object.entries(documents[0]?.artefacts ?? {}).filter(([, one]) => one.uri.startsWith(this.job.links.artefacts));
    const artefacts = Object.fromEntries(served); // others are on S3
    this.find(".results").hidden = !served.length;
    this.reviewAddress = artefacts["review.html"] && this.address(artefacts["review.html"]);
    this.find(".review").hidden = !this.reviewAddress;
    for (const link of this.element.querySelectorAll(".results a")) {
      const artefact = artefacts[link.dataset.name];
      link.hidden = !artefact;
      if (artefact) link.href = this.address(artefact);
    }
    this.find(".lost").hidden = !lost.length;
    this.find(".lost").textContent = `lost: ${lost.join("; ")}`;
    const problems = (result.problems ?? []).filter((problem) => problem.message !== this.job.error?.message);
    this.showProblems(problems);
  }

  showProblems(problems) {
    const list = this.find(".problems");
    list.hidden = !problems.length;
    list.replaceChildren(...problems.slice(0, MAX_PROBLEMS).map((problem) => {
      const code = make("strong", "", problem.code);
      const item = make("li", problem.severity, "");
      item.append(code, ` ${problem.message}`);
      return item;
    }));
    if (problems.length > MAX_PROBLEMS) list.append(make("li", "warning", `and ${problems.length - MAX_PROBLEMS} more`));
  }

  // The address that contains its permission, for links and frames, which send no key.
  address(artefact) {
    return artefact.uri.replace(this.job.links.artefacts, this.job.links.files);
  }

  addPage(page) {
    const tiles = this.find(".tiles");
    const id = `${page.document}/${page.number}`;
    if ([...tiles.children].some((tile) => tile.dataset.id === id)) return;
    if (tiles.children.length >= MAX_TILES) {
      this.find(".more").textContent = `Only ${MAX_TILES} pages are shown here; the review page has all.`;
      this.find(".more").hidden = false;
      return;
    }
    const tile = make("button", page.state, String(page.number));
    tile.title = `page ${page.number}: ${page.state.replace("_", " ")}`;
    tile.setAttribute("aria-label", tile.title);
    tile.setAttribute("aria-pressed", "false");
    tile.tabIndex = tiles.children.length ? -1 : 0; // the arrow keys lead to the others
    if (this.missingPictures < MAX_MISSING_PICTURES) tile.prepend(this.makePicture(page));
    Object.assign(tile.dataset, { id, document: page.document, number: page.number });
    tile.onclick = () => {
      focusInToolbar(tile);
      this.chosenPage = this.chosenPage === id ? null : id;
      if (this.chosenPage) this.showDraft(tile);
      else this.hideDraft();
    };
    const isBefore = (other) =>
      other.dataset.document < page.document || (other.dataset.document === page.document && Number(other.dataset.number) < page.number);
    const next = [...tiles.children].find((other) => !isBefore(other));
    tiles.insertBefore(tile, next ?? null);
    tiles.hidden = false;
    if (!this.isActive || this.chosenPage) return;
    if (!tiles.matches(":hover, :focus-within")) tiles.scrollTop = tile.offsetTop + tile.offsetHeight - tiles.clientHeight;
    if (page.state !== "blank") this.showNewest(tile);
  }

  makePicture(page) {
    const picture = make("img", "", "");
    picture.alt = "";
    picture.loading = "lazy";
    picture.onerror = () => {
      this.missingPictures += 1;
      picture.remove();
    };
    const name = `p${String(page.number).padStart(4, "0")}.webp`;
    picture.src = `${this.job.links.files}${encodeURIComponent(page.document)}/thumbnails/${name}`;
    return picture;
  }

  // Show the page that was read last; pages that arrive while one is fetched are skipped but for the newest.
  async showNewest(tile) {
    const isFetching = this.newest !== null;
    this.newest = tile;
    if (isFetching) return;
    while (this.newest && !this.chosenPage && !this.isFinal) {
      const shown = this.newest;
      await this.showDraft(shown);
      if (this.newest === shown) break;
    }
    this.newest = null;
    if (this.isFinal && !this.chosenPage) this.hideDraft();
  }

  hideDraft() {
    this.find(".draft").hidden = true;
    for (const tile of this.find(".tiles").children) tile.setAttribute("aria-pressed", "false");
  }

  async showDraft(tile) {
    const { document: folder, number } = tile.dataset;
    const page = await this.fetchPage(folder, number);
    if (!page) return;
    for (const other of this.find(".tiles").children) other.setAttribute("aria-pressed", String(other === tile));
    this.find(".draft figcaption").textContent = `Page ${number}, as it was read`;
    const parts = page.elements.map(describeElement).filter(Boolean);
    this.find(".draft .text").replaceChildren(...(parts.length ? parts : [make("p", "other", "no text")]));
    this.find(".draft .text").scrollTop = 0;
    this.find(".draft").hidden = false;
  }

  async fetchPage(folder, number) {
    try {
      const response = await call(`${this.job.links.artefacts}${encodeURIComponent(folder)}/pages/${number.padStart(4, "0")}.json`);
      return response.ok ? await response.json() : null;
    } catch {
      return null; // the connection was lost
    }
  }

  async cancel() {
    if (!this.job) {
      this.isAborted = true;
      this.abort?.();
      return this.leave();
    }
    this.find(".cancel").disabled = true;
    if (!(await this.callDelete())) this.find(".cancel").disabled = false;
  }

  // Let the server read what is missing; pages that were read stay.
  async resume(password) {
    this.find(".again").disabled = true;
    const body = password && { headers: { "Content-Type": "application/json" }, body: JSON.stringify({ password }) };
    try {
      const response = await call(this.job.links.resume, { method: "POST", ...body });
      const answer = await response.json();
      if (response.ok) {
        this.show(answer);
        this.find(".cancel").focus();
      } else this.showError(answer);
    } catch {
      announce("the connection to the server was lost; try again");
    }
    this.find(".again").disabled = false;
  }

  // Delete the job after a while in which the user can undo it.
  removeSoon() {
    this.element.toggleAttribute("data-leaving", true);
    this.find(".undo").focus();
    leaving.add(this);
    this.timer = setTimeout(() => this.remove(), UNDO_MS);
  }

  undo() {
    this.stay();
    this.find(".delete").focus();
  }

  stay() {
    clearTimeout(this.timer);
    leaving.delete(this);
    this.element.toggleAttribute("data-leaving", false);
  }

  async remove() {
    leaving.delete(this);
    if (!this.job || (await this.callDelete())) this.leave();
    else this.stay();
  }

  async callDelete() {
    try {
      const response = await call(this.job.links.self, { method: "DELETE", keepalive: true }); // the tab may be closed
      if (response.ok || response.status === 404) return true; // or it was deleted before
      announce((await response.json()).message);
    } catch {
      announce("the connection to the server was lost; try again");
    }
    return false;
  }

  // Remove the card. The keyboard's focus goes to the next one, if it was in this one.
  leave() {
    const next = this.element.nextElementSibling ?? this.element.previousElementSibling;
    const hadFocus = this.element.contains(document.activeElement);
    this.stay();
    if (this.job) cards.delete(this.job.id);
    this.element.remove();
    showEmptiness();
    if (hadFocus) (next?.querySelector(".head button:not([hidden])") ?? select("#choose")).focus();
  }
}

// Results are fetched when their card comes into view: there may be a week's jobs.
const visible = new IntersectionObserver((entries) => {
  for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
    visible.unobserve(target);
    for (const card of cards.values()) if (card.element === target) load(card);
  }
});

async function load(card) {
  try {
    await card.load();
  } catch {
    await pause(RETRY_MS); // the connection was lost
    visible.observe(card.element);
  }
}

function announce(text) {
  select("#announcement").textContent = text;
}

// One button of a toolbar is reached with Tab, the others from there with the arrow keys.
function focusInToolbar(button) {
  for (const other of button.parentElement.children) other.tabIndex = other === button ? 0 : -1;
  button.focus();
}

function moveInToolbar(event) {
  const buttons = [...event.currentTarget.children];
  const now = buttons.indexOf(document.activeElement);
  const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (!buttons[to]) return;
  event.preventDefault();
  focusInToolbar(buttons[to]);
}

function describeElement(element) {
  if (element.content_layer === "furniture") return null;
  if (element.category === "table") return make("p", "other", "(table)");
  const text = element.text ?? element.figure?.description;
  if (!text) return make("p", "other", "(figure)");
  return make("p", element.category === "text_paragraph" ? "" : "heading", text);
}

function makeSaveLink(label, file) {
  const link = make("a", "button", label);
  link.download = "";
  link.dataset.name = file;
  return link;
}

function capitalize(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

function formatBytes(bytes) {
  const units = ["bytes", "KB", "MB", "GB"];
  const power = Math.min(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 3);
  return `${Math.round((10 * bytes) / 1024 ** power) / 10} ${units[power]}`;
}

function formatSeconds(seconds) {
  return seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.ceil(seconds / 60)} min`;
}

function showEmptiness() {
  const isEmpty = !jobs.children.length;
  document.body.classList.toggle("is-empty", isEmpty);
  select("#empty").hidden = !isEmpty;
}

// ---- the review page ------------------------------------------------------------------------------

let opener = null;

// Show the review that the address names, or none.
function showReview() {
  const card = location.hash.startsWith(REVIEW) ? cards.get(location.hash.slice(REVIEW.length)) : null;
  if (!card?.reviewAddress) return closeViewer();
  if (select("#viewer").dataset.address === card.reviewAddress) return;
  closeViewer();
  opener = card.find(".review");
  select("#viewer h2").textContent = card.job.name;
  select("#viewer a").href = card.reviewAddress;
  const frame = document.createElement("iframe"); // a new one each time: its first page is no step of Back
  frame.title = "Review of the document";
  frame.sandbox = "allow-scripts allow-popups";
  frame.src = card.reviewAddress;
  select("#viewer").append(frame);
  select("#viewer").dataset.address = card.reviewAddress;
  showViewer(true);
  select("#close").focus();
}

function closeViewer() {
  if (select("#viewer").hidden) return;
  select("#viewer iframe").remove();
  delete select("#viewer").dataset.address;
  showViewer(false);
  opener.focus();
}

function showViewer(isOpen) {
  select("#viewer").hidden = !isOpen;
  for (const name of ["header", "main"]) select(name).inert = isOpen;
}

function leaveReview() {
  history.replaceState(null, "", location.pathname);
  closeViewer();
}

// ---- sending --------------------------------------------------------------------------------------

function readOptions() {
  const pages = select("#pages").value.trim();
  const mode = select("#mode").value;
  const formats = [...document.querySelectorAll("#formats input:checked")].map((input) => input.value);
  const furniture = WITH_FURNITURE.some((format) => formats.includes(format)) && select("#furniture").value;
  return { formats: ["review", ...formats], ...(pages && { pages }), ...(mode && { mode }), ...(furniture && { furniture }) };
}

// Offer what this server can do; what the user chose stays.
function showOptions(health) {
  const before = select("#formats").dataset.offered;
  select("#formats").dataset.offered = JSON.stringify([health.formats, health.modes]);
  if (before === select("#formats").dataset.offered) return;
  const formats = Object.keys(FORMATS).filter((format) => health.formats.includes(format));
  select("#formats").replaceChildren(make("span", "", "Formats"), ...formats.map(makeFormatBox));
  select("#mode").replaceChildren(...health.modes.map((mode) => new Option(MODES[mode], mode)));
}

function makeFormatBox(format) {
  const box = make("input", "", "");
  Object.assign(box, { type: "checkbox", value: format, checked: CHOSEN_FORMATS.includes(format) });
  const label = make("label", "", "");
  label.append(box, ` ${FORMATS[format][0]}`);
  return label;
}

async function sendAll(files) {
  const input = readOptions();
  const waiting = [...files].map((file) => [new Card(file.name), file]);
  await track(async () => {
    for (const [card, file] of waiting) await card.send(file, input); // one after another: they share the connection
  });
}

// While files are sent, the browser asks before it leaves the page.
async function track(send) {
  sending += 1;
  try {
    await send();
  } finally {
    sending -= 1;
  }
}

const drop = select("#drop");
let depth = 0; // of elements inside the window that the files are dragged over
addEventListener("dragenter", (event) => {
  event.preventDefault();
  depth += 1;
  drop.classList.add("over");
});
addEventListener("dragleave", () => {
  depth -= 1;
  if (!depth) drop.classList.remove("over");
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  depth = 0;
  drop.classList.remove("over");
  sendAll(event.dataTransfer.files);
});
drop.onsubmit = (event) => event.preventDefault();
select("#choose").onclick = () => select("#files").click();
select("#files").onchange = (event) => {
  sendAll(event.target.files);
  event.target.value = "";
};
select("#close").onclick = leaveReview;
addEventListener("hashchange", showReview);
addEventListener("beforeunload", (event) => {
  if (sending) event.preventDefault();
});
addEventListener("pagehide", () => {
  for (const card of leaving) card.remove(); // nobody can undo it any more
});
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !select("#viewer").hidden) leaveReview();
});
select("#forget").onclick = () => {
  sessionStorage.removeItem(KEY);
  location.reload();
};

// ---- following all jobs ---------------------------------------------------------------------------

async function showHealth() {
  const health = await (await fetch("/health")).json();
  maxBytes = health.max_source_bytes ?? Infinity;
  if (health.formats) showOptions(health);
  select("#limit").textContent = maxBytes === Infinity ? "" : `, up to ${formatBytes(maxBytes)} each`;
  showServer(health.status === "ready" ? `engine ${health.engine}` : health.message ?? "the engine is not ready", false);
}

function showServer(text, isAlert) {
  const status = select("#server");
  if (status.textContent !== text) status.textContent = text; // a screen reader says it again otherwise
  status.classList.toggle("alert", isAlert);
}

// Follow all jobs, and over the next connection when one is lost.
async function followJobs() {
  for (;;) {
    let message = "Connection lost; trying again …";
    try {
      await showHealth();
      const refusal = await checkAccess();
      if (refusal) message = refusal;
      else if (canShare) await followShared();
      else await followAlone();
    } catch {
      // the next connection begins with everything
    }
    showServer(message, true);
    await pause(RETRY_MS);
  }
}

// Ask the user for the key until it is right; returns why the server refuses the page for another reason.
async function checkAccess() {
  const abort = new AbortController();
  const response = await call("/v1/events", { signal: abort.signal });
  if (!response.ok) return (await response.json()).message;
  abort.abort();
  return null;
}

// Follow the events that a SharedWorker reads for all tabs: a browser opens only six connections to a server.
function followShared() {
  let worker;
  try {
    worker = new SharedWorker("/shared.js", { type: "module" });
  } catch {
    canShare = false;
    return followAlone();
  }
  const { port } = worker;
  const handle = makeHandler();
  const listening = new AbortController();
  return new Promise((resolve) => {
    let timer = setTimeout(resolve, SILENCE_MS);
    port.onmessage = ({ data: [name, data] }) => {
      clearTimeout(timer);
      if (name === "lost") return resolve();
      timer = setTimeout(resolve, SILENCE_MS);
      handle(name, data);
    };
    worker.onerror = () => {
      canShare = false;
      resolve();
    };
    const options = { signal: listening.signal };
    addEventListener("pagehide", () => port.postMessage("leave"), options);
    addEventListener("pageshow", (event) => event.persisted && resolve(), options); // shown again as it was left
    port.postMessage(headers());
  }).finally(() => {
    listening.abort();
    port.postMessage("leave");
    port.close();
  });
}

// Without a SharedWorker, ask for everything again and again while the tab can be seen, and hold no connection.
async function followAlone() {
  for (;;) {
    while (document.hidden) await new Promise((resolve) => addEventListener("visibilitychange", resolve, { once: true }));
    const handle = makeHandler();
    let isListed = false;
    for await (const [name, data] of readEvents(headers())) {
      handle(name, data);
      isListed = name === "listed";
      if (isListed) break;
    }
    if (!isListed) return;
    await pause(RETRY_MS);
  }
}

// A handler of the events of one connection.
function makeHandler() {
  const seen = new Set();
  let isListed = false;
  return (name, data) => {
    if (name === "job") {
      seen.add(data.id);
      const isNew = isListed && !cards.has(data.id);
      if (!cards.has(data.id)) cards.set(data.id, new Card(data.name, data.created));
      const card = cards.get(data.id);
      card.show(data);
      if (isNew && card.isFinal) card.announceState(); // it ended between two looks of the server
    } else if (name === "page") cards.get(data.job)?.addPage(data);
    else if (name === "deleted") cards.get(data)?.leave();
    else if (name === "listed") {
      isListed = true;
      for (const [id, card] of [...cards]) if (!seen.has(id)) card.leave(); // deleted while the connection was lost
      showEmptiness();
    }
  };
}

showKey();
followJobs();
