// The page of `twopass serve`: sends files, follows their jobs by server-sent events, and opens what was read.
const select = (selector, root = document) => root.querySelector(selector);
const FORMATS = ["docjson", "markdown", "review", "zip"];
const RETRY_MS = 2000; // after a lost connection
const MAX_TILES = 500; // a tile for each page of longer documents would be too many
const MAX_PROBLEMS = 8;
const STATES = { queued: "waiting", running: "reading", done: "done", failed: "failed", cancelled: "cancelled" };
const KEY = "twopass-key";
const jobs = select("#jobs");
let maxBytes = Infinity;
let askingForKey = null;

// ---- requests ---------------------------------------------------------------------------------

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { "X-API-Key": key } : {};
}

// Ask for the key, once for all requests that were refused; they are sent again afterwards.
function askForKey() {
  askingForKey ??= new Promise((resolve) => {
    const dialog = select("#ask");
    select("#wrong").textContent = sessionStorage.getItem(KEY) ? "That key is wrong." : "";
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
  select("#forget").hidden = !sessionStorage.getItem(KEY);
}

async function call(path, options = {}) {
  for (;;) {
    const response = await fetch(path, { ...options, headers: headers() });
    if (response.status !== 401) return response;
    await askForKey();
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
  // `place` is "prepend" for new jobs and "append" for older ones.
  constructor(name, place) {
    this.element = select("#card").content.firstElementChild.cloneNode(true);
    this.job = null;
    this.abort = null;
    this.isAborted = false;
    this.chosenPage = null; // the page whose text the user wants to see
    this.newest = null; // the page whose text is fetched next
    this.find(".name").textContent = name;
    this.find(".name").title = name;
    this.find(".cancel").onclick = () => this.cancel();
    this.find(".delete").onclick = () => this.remove();
    this.find(".review").onclick = () => this.review();
    this.setState("queued", "sending");
    jobs[place](this.element);
    showEmptiness();
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
      const { status, body, retryAfter } = await sendFile(file, input, this);
      if (this.isAborted) return;
      if (status === 401) await askForKey();
      else if (retryAfter) {
        this.showWaiting(retryAfter);
        await pause(1000 * retryAfter);
      } else if (status === 200 || status === 202) return void this.follow(body);
      else return this.fail(body);
    }
  }

  // Follow the job until it has ended, over as many connections as that takes.
  async follow(job) {
    if (job.state === "done") return this.showEnded(job);
    this.show(job);
    while (!this.isFinal) {
      try {
        const response = await call(`${job.links.self}/events`);
        if (response.status === 404) return this.leave();
        if (response.ok) await readEvents(response, (name, data) => this.handle(name, data));
      } catch {
        // the connection was lost: the next one begins with everything
      }
      if (!this.isFinal) {
        this.find(".detail").textContent = "the connection was lost; trying again …";
        await pause(RETRY_MS);
      }
    }
  }

  // Show a job that had ended before this page was opened.
  async showEnded(job) {
    const answers = await Promise.all([call(job.links.self), call(job.links.pages)]);
    if (!answers.every((answer) => answer.ok)) return this.leave();
    this.show(await answers[0].json());
    for (const page of await answers[1].json()) this.addPage(page);
  }

  get isFinal() {
    return ["done", "failed", "cancelled"].includes(this.job?.state);
  }

  handle(name, data) {
    if (name === "page") this.addPage(data);
    else this.show(data);
  }

  show(job) {
    this.job = job;
    this.setState(job.state);
    this.showProgress(job.progress);
    const isFinal = this.isFinal;
    this.find(".reading").hidden = isFinal;
    this.find(".cancel").hidden = isFinal;
    this.find(".delete").hidden = !isFinal;
    if (job.error) this.fail(job.error);
    if (job.result) this.showResult(job.result);
    if (isFinal && !this.chosenPage) this.hideDraft();
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
    const phase = progress.phase === "assembling" ? " · writing the document" : left;
    this.find(".detail").textContent = `${progress.pages_done} of ${progress.pages_total} pages${phase}`;
  }

  fail(error) {
    if (!this.job) this.setState("failed");
    this.find(".reading").hidden = true;
    this.find(".cancel").hidden = true;
    this.find(".delete").hidden = false;
    this.find(".failure").hidden = false;
    this.find(".failure strong").textContent = error.code;
    this.find(".failure span").textContent = error.message;
  }

  showResult(result) {
    const documents = result.documents ?? [];
    if (result.status === "partial_success") {
      this.element.classList.add("partial");
      this.find(".state").textContent = "partly read";
    }
    const counts = Object.entries(documents[0]?.pages ?? {}).map(([state, count]) => `${count} ${state.replace("_", " ")}`);
    if (counts.length) this.find(".state").textContent += ` · ${counts.join(", ")}`;
    const artefacts = documents[0]?.artefacts ?? {};
    this.find(".results").hidden = !Object.keys(artefacts).length;
    this.find(".review").hidden = !artefacts["review.html"];
    for (const link of this.element.querySelectorAll(".results a")) {
      const artefact = artefacts[link.dataset.name];
      link.hidden = !artefact;
      if (artefact) link.href = this.address(artefact);
    }
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
    if (tiles.children.length >= MAX_TILES || [...tiles.children].some((tile) => tile.dataset.id === id)) return;
    const tile = make("button", page.state, String(page.number));
    tile.title = `page ${page.number}: ${page.state.replace("_", " ")}`;
    tile.setAttribute("aria-pressed", "false");
    Object.assign(tile.dataset, { id, document: page.document, number: page.number });
    tile.onclick = () => {
      this.chosenPage = this.chosenPage === id ? null : id;
      if (this.chosenPage) this.showDraft(tile);
      else this.hideDraft();
    };
    const isBefore = (other) =>
      other.dataset.document < page.document || (other.dataset.document === page.document && Number(other.dataset.number) < page.number);
    const next = [...tiles.children].find((other) => !isBefore(other));
    tiles.insertBefore(tile, next ?? null);
    tiles.hidden = false;
    if (!this.isFinal && !this.chosenPage && page.state !== "blank") this.showNewest(tile);
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
    const response = await call(`${this.job.links.artefacts}${folder}/pages/${number.padStart(4, "0")}.json`);
    if (!response.ok) return;
    const page = await response.json();
    for (const other of this.find(".tiles").children) other.setAttribute("aria-pressed", String(other === tile));
    this.find(".draft figcaption").textContent = `Page ${number}, as it was read`;
    const parts = page.elements.map(describeElement).filter(Boolean);
    this.find(".draft .text").replaceChildren(...(parts.length ? parts : [make("p", "other", "no text")]));
    this.find(".draft .text").scrollTop = 0;
    this.find(".draft").hidden = false;
  }

  review() {
    openViewer(this.job.name, this.address(this.job.result.documents[0].artefacts["review.html"]), this.find(".review"));
  }

  async cancel() {
    if (!this.job) {
      this.isAborted = true;
      this.abort?.();
      return this.leave();
    }
    this.find(".cancel").disabled = true;
    await call(this.job.links.self, { method: "DELETE" });
  }

  async remove() {
    if (this.job) await call(this.job.links.self, { method: "DELETE" });
    this.leave();
  }

  leave() {
    this.job = { ...this.job, state: "cancelled" };
    this.element.remove();
    showEmptiness();
    select("#choose").focus();
  }
}

function describeElement(element) {
  if (element.content_layer === "furniture") return null;
  if (element.category === "table") return make("p", "other", "(table)");
  const text = element.text ?? element.figure?.description;
  if (!text) return make("p", "other", "(figure)");
  return make("p", element.category === "text_paragraph" ? "" : "heading", text);
}

function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}

// Read server-sent events from a response: EventSource cannot send the key.
async function readEvents(response, handle) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      if (fields.event) handle(fields.event, JSON.parse(fields.data));
    }
  }
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

function openViewer(name, address, button) {
  opener = button;
  select("#viewer h2").textContent = name;
  select("#viewer a").href = address;
  select("#viewer iframe").src = address;
  select("#viewer").hidden = false;
  select("#close").focus();
}

function closeViewer() {
  select("#viewer").hidden = true;
  select("#viewer iframe").removeAttribute("src");
  opener?.focus();
}

// ---- sending --------------------------------------------------------------------------------------

function readOptions() {
  const pages = select("#pages").value.trim();
  const password = select("#password").value;
  return { formats: FORMATS, ...(pages && { pages }), ...(password && { password }) };
}

async function sendAll(files) {
  const input = readOptions();
  const sending = [...files].map((file) => [new Card(file.name, "prepend"), file]);
  for (const [card, file] of sending) await card.send(file, input); // one after another: they share the connection
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
select("#close").onclick = closeViewer;
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !select("#viewer").hidden) closeViewer();
});
select("#forget").onclick = () => {
  sessionStorage.removeItem(KEY);
  location.reload();
};

async function start() {
  showKey();
  const health = await (await fetch("/health")).json();
  maxBytes = health.max_source_bytes ?? Infinity;
  select("#limit").textContent = `, up to ${formatBytes(maxBytes)} each`;
  select("#server").textContent = health.status === "ready" ? `engine ${health.engine}` : health.message ?? "not ready";
  const response = await call("/v1/jobs");
  const answer = await response.json();
  if (!response.ok) select("#server").textContent = answer.message;
  for (const job of answer.jobs ?? []) new Card(job.name, "append").follow(job);
  showEmptiness();
}

start();
