// The review page. What is toggled is kept at once; accepting keeps the rest of what is shown.
"use strict";

const KEYS = "1234567890abcdefghijklmnopqrstuvwxy"; // z undoes
const PAGE = 40; // images of the grid at once
const MARKS = { yes: "✓", no: "–", unsure: "?" };
const TILE_MARKS = { yes: "✓", no: "✕", unsure: "?" };

const at = (id) => document.getElementById(id);
const state = {
  tags: [], // {name, threshold}
  mode: "single",
  order: "teach",
  tag: null, // its number, or null: all images
  show: "given", // in the grid: images that have the tag, or that have not
  queue: [], // numbers of images in the order to ask
  place: 0, // in the queue
  shown: [], // what is known of the images on the screen
  turn: 0, // counts requests for a view: a late answer to an old one is not shown
};
let saving = Promise.resolve(); // decisions are sent one after the other, in the order they were made

// ---- talking to the server ----

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("fewtags review is not running any more; start it again and open the new address");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

async function details(numbers) {
  return numbers.length ? (await ask(`api/images?numbers=${numbers.join(",")}`)).images : [];
}

function tell(text, bad = false) {
  at("status").textContent = text;
  at("status").classList.toggle("bad", bad);
}

function guarded(work) {
  return (...given) => Promise.resolve(work(...given)).catch((error) => tell(error.message, true));
}

// ---- what is shown of a tag of an image ----

function answerOf(image, tag) {
  if (image.answers[tag]) return { answer: image.answers[tag], by: "you" };
  if (image.labels[tag] !== null) return { answer: image.labels[tag] ? "yes" : "no", by: "label" };
  const threshold = state.tags[tag].threshold;
  return { answer: threshold !== null && image.scores[tag] >= threshold ? "yes" : "no", by: "model" };
}

function flipped(image, tag) {
  return answerOf(image, tag).answer === "yes" ? "no" : "yes";
}

const BY = { you: "you decided", label: "from your labels", model: "the model's guess" };

// ---- deciding and undoing ----

function decide(cells) {
  if (!cells.length) return Promise.resolve();
  const before = cells.map(([number, tag, answer]) => {
    const image = state.shown.find((one) => one.number === number);
    const old = image.answers[tag];
    image.answers[tag] = answer;
    return () => { image.answers[tag] = old; };
  });
  draw();
  saving = saving.then(async () => {
    try {
      const kept = await ask("api/decide", { cells });
      remember(kept.action, [...new Set(cells.map(([number]) => number))]);
      showProgress(kept.progress);
      tell(cells.length === 1 ? "kept" : `kept: ${cells.length} decisions`);
    } catch (error) {
      before.forEach((restore) => restore());
      draw();
      throw new Error(`not kept: ${error.message}`);
    }
  });
  const mine = saving;
  saving = saving.catch(() => {});
  return mine;
}

function remembered() {
  return JSON.parse(sessionStorage.getItem(location.pathname) || "[]");
}

function remember(action, numbers) {
  sessionStorage.setItem(location.pathname, JSON.stringify([...remembered(), { action, numbers }].slice(-500)));
  at("undo").disabled = false;
}

async function undo() {
  await saving;
  const actions = remembered();
  const last = actions.pop();
  if (!last) return tell("nothing to undo in this tab");
  sessionStorage.setItem(location.pathname, JSON.stringify(actions)); // also if another tab has undone it before
  at("undo").disabled = !actions.length;
  const { progress } = await ask("api/undo", { action: last.action });
  showProgress(progress);
  const place = state.queue.indexOf(last.numbers[0]);
  if (place >= 0) state.place = state.mode === "single" ? place : place - (place % PAGE);
  await showPlace();
  tell("undone");
}

let accepting = false; // a key that is held or pressed twice must not pass over what nobody has seen

const accept = guarded(async () => {
  if (accepting) return;
  const cells = [];
  for (const image of state.shown) {
    const tags = state.mode === "grid" ? [state.tag] : state.tags.keys();
    for (const tag of tags) if (!image.answers[tag]) cells.push([image.number, tag, answerOf(image, tag).answer]);
  }
  if (!state.shown.length) return;
  accepting = true;
  try {
    await decide(cells);
    await move(1);
  } finally {
    accepting = false;
  }
});

// ---- moving ----

async function loadQueue() {
  const turn = ++state.turn;
  const asked = new URLSearchParams({ order: state.order });
  if (state.mode === "grid" && state.tag === null) state.tag = 0;
  if (state.tag !== null) asked.set("tag", state.tag);
  if (state.mode === "grid") asked.set("show", state.show);
  const { numbers, start } = await ask(`api/queue?${asked}`);
  if (turn !== state.turn) return;
  state.queue = numbers;
  state.place = state.mode === "grid" ? 0 : start;
  await showPlace();
}

function step() {
  return state.mode === "grid" ? PAGE : 1;
}

async function move(steps) {
  const place = state.place + steps * step();
  if (place < 0) return;
  state.place = Math.min(place, state.queue.length);
  await showPlace();
}

async function showPlace() {
  const turn = ++state.turn;
  const shown = await details(state.queue.slice(state.place, state.place + step()));
  if (turn !== state.turn) return;
  state.shown = shown;
  tell("");
  draw();
  if (state.mode === "grid") focusTile(0);
  else fetchAhead();
  document.querySelector("main").scrollTop = 0;
}

function fetchAhead() {
  for (const number of state.queue.slice(state.place + 1, state.place + 3)) new Image().src = `large/${number}.jpg`;
}

// ---- drawing ----

function draw() {
  const single = state.mode === "single";
  at("single").hidden = !single || !state.shown.length;
  at("grid").hidden = single;
  at("empty").hidden = state.shown.length > 0;
  at("empty").textContent = emptyText();
  press("mode-single", single);
  press("mode-grid", !single);
  press("order-teach", state.order === "teach");
  press("order-stored", state.order === "stored");
  press("show-given", state.show === "given");
  press("show-missing", state.show === "missing");
  at("search").value = state.tag === null ? "" : state.tags[state.tag].name;
  at("back").disabled = state.place === 0;
  at("next").disabled = state.place >= state.queue.length;
  at("accept").disabled = !state.shown.length;
  at("accept-text").textContent = single ? "Accept" : `Accept all ${state.shown.length}`;
  at("back-key").textContent = single ? "←" : "Page ↑";
  at("next-key").textContent = single ? "→" : "Page ↓";
  at("undo").disabled = !remembered().length;
  showProgress();
  if (single && state.shown.length) drawImage(state.shown[0]);
  if (!single) drawGrid();
}

function press(id, on) {
  at(id).setAttribute("aria-pressed", on);
}

function showProgress(progress) {
  if (progress) state.progress = progress;
  const { images, touched, decisions } = state.progress;
  const many = state.queue.length;
  const last = Math.min(state.place + step(), many);
  const here = state.mode === "grid" && last > state.place ? `${count(state.place + 1)}–${count(last)}` : count(last);
  const words = [`${many ? here : 0} of ${count(many)} · `, `${count(decisions)} decision${decisions === 1 ? "" : "s"}`];
  at("progress").replaceChildren(...words.map((text) => make("span", "", text)));
  at("bar").max = images;
  at("bar").value = touched;
  at("bar").title = `${count(touched)} of ${count(images)} images looked at`;
}

function emptyText() {
  if (state.mode === "single") {
    if (!state.queue.length) return "No image has this tag. Clear the search to see all images.";
    return "That was the last image. Learn again with your decisions: fewtags train RUN --with-review --out RUN2";
  }
  const name = state.tag === null ? "" : state.tags[state.tag].name;
  if (state.show === "given") return `No open image is left that was given “${name}”. Look at “Not given”, or at another tag.`;
  return `No open image is left that was not given “${name}”. Look at another tag.`;
}

function drawImage(image) {
  const picture = at("picture");
  const source = `large/${image.number}.jpg`;
  if (picture.getAttribute("src") !== source) {
    picture.hidden = false;
    at("no-picture").hidden = true;
    picture.src = source;
    picture.alt = image.name;
  }
  const labelled = image.labels.some((label) => label !== null);
  const small = make("small", "", labelled ? "labelled" : "unlabelled");
  at("name").replaceChildren(image.name, " ", small);
  const order = tagOrder(image);
  const focused = document.activeElement?.dataset?.tag;
  at("toggles").replaceChildren(...order.map((tag, place) => row(image, tag, KEYS[place] || "")));
  if (focused !== undefined) at("toggles").querySelector(`.toggle[data-tag="${Number(focused)}"]`)?.focus();
}

// Few tags keep their places, so that a key always means the same; of many, the likely ones come first.
function tagOrder(image) {
  const order = [...state.tags.keys()];
  if (state.tags.length <= KEYS.length) return order;
  return order.sort((a, b) => image.scores[b] - image.scores[a]);
}

function row(image, tag, key) {
  const { answer, by } = answerOf(image, tag);
  const { name } = state.tags[tag];
  const toggle = make("button", `toggle ${answer} by-${by}`);
  toggle.type = "button";
  toggle.dataset.tag = tag;
  toggle.title = `${name}: ${answer} (${BY[by]})`;
  toggle.setAttribute("aria-pressed", answer === "unsure" ? "mixed" : answer === "yes");
  toggle.append(make("kbd", "key", key.toUpperCase()), make("span", "tag", name), score(image, tag), make("span", "mark", MARKS[answer]));
  toggle.addEventListener("click", guarded(() => decide([[image.number, tag, flipped(image, tag)]])));
  const maybe = make("button", "maybe", "?");
  maybe.type = "button";
  maybe.title = `unsure about ${name}`;
  maybe.setAttribute("aria-label", `unsure about ${name}`);
  maybe.setAttribute("aria-pressed", answer === "unsure");
  maybe.addEventListener("click", guarded(() => decide([[image.number, tag, "unsure"]])));
  const both = make("div", "row");
  both.append(toggle, maybe);
  return both;
}

function score(image, tag) {
  const { threshold } = state.tags[tag];
  const value = image.scores[tag];
  const box = make("span", "score");
  const fill = make("span", "fill");
  fill.style.width = `${100 * value}%`;
  box.append(make("span", "text", `${value.toFixed(2)} / ${threshold === null ? "never" : threshold.toFixed(2)}`), make("span", "track"), fill);
  if (threshold !== null) {
    const line = make("span", "line");
    line.style.left = `calc(${100 * Math.min(threshold, 1)}% - 1px)`;
    box.append(line);
  }
  box.title = threshold === null ? "score; this tag is never given" : "score / threshold of this tag";
  return box;
}

function drawGrid() {
  const many = state.shown.length;
  const name = make("b", "", state.tags[state.tag].name);
  const words = state.show === "given" ? `Do all of these ${many} show ` : `Do none of these ${many} show `;
  at("asked").replaceChildren(...(many ? [words, name, "?"] : [name]));
  const { threshold } = state.tags[state.tag];
  at("asked-threshold").textContent = threshold === null ? "never given" : `threshold ${threshold.toFixed(2)}`;
  const tiles = at("tiles");
  if (tiles.dataset.shown !== state.shown.map((image) => image.number).join()) {
    tiles.replaceChildren(...state.shown.map(tile));
    tiles.dataset.shown = state.shown.map((image) => image.number).join();
  }
  state.shown.forEach((image, place) => mark(tiles.children[place], image));
}

function tile(image) {
  const button = make("button", "tile");
  button.type = "button";
  button.dataset.number = image.number;
  const picture = make("img");
  picture.loading = "lazy";
  picture.alt = image.name;
  picture.src = `small/${image.number}.jpg`;
  button.append(picture, make("span", "mark"), make("span", "text"));
  button.addEventListener("click", guarded((event) => {
    const now = state.shown.find((one) => one.number === image.number);
    return decide([[now.number, state.tag, event.shiftKey ? "unsure" : flipped(now, state.tag)]]);
  }));
  return button;
}

function mark(button, image) {
  const { answer, by } = answerOf(image, state.tag);
  button.className = `tile ${answer} by-${by}`;
  button.title = `${image.name}: ${answer} (${BY[by]})`;
  button.setAttribute("aria-pressed", answer === "unsure" ? "mixed" : answer === "yes");
  button.querySelector(".mark").textContent = TILE_MARKS[answer];
  button.querySelector(".text").textContent = image.scores[state.tag].toFixed(2);
}

function make(kind, name = "", text = "") {
  const element = document.createElement(kind);
  if (name) element.className = name;
  if (text) element.textContent = text;
  return element;
}

function count(number) {
  return number.toLocaleString("en");
}

// ---- choices ----

function setter(key, value) {
  return guarded(() => {
    if (state[key] === value) return undefined;
    state[key] = value;
    if (key === "mode" && value === "single") state.tag = null;
    return loadQueue();
  });
}

const find = guarded(() => {
  const wanted = at("search").value.trim().toLowerCase();
  const names = state.tags.map((tag) => tag.name.toLowerCase());
  const exact = names.indexOf(wanted);
  const found = exact >= 0 ? exact : names.findIndex((name) => name.startsWith(wanted));
  if (wanted && found < 0) return tell(`there is no tag “${at("search").value}”`, true);
  state.tag = wanted ? found : null;
  return loadQueue();
});

function otherTag(steps) {
  return guarded(() => {
    state.tag = (state.tag + steps + state.tags.length) % state.tags.length;
    return loadQueue();
  });
}

// ---- keys ----

function focusTile(place) {
  const tiles = at("tiles").children;
  if (tiles.length) tiles[Math.max(0, Math.min(place, tiles.length - 1))].focus();
}

function focusedTile() {
  return [...at("tiles").children].indexOf(document.activeElement);
}

function columns() {
  const tiles = [...at("tiles").children];
  return tiles.filter((one) => one.offsetTop === tiles[0]?.offsetTop).length || 1;
}

function gridKey(event) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() }[event.key];
  if (steps !== undefined) return focusTile(focusedTile() + steps);
  if (event.key === "PageDown") return guarded(move)(1);
  if (event.key === "PageUp") return guarded(move)(-1);
  if (event.key === "[") return otherTag(-1)();
  if (event.key === "]") return otherTag(1)();
  if (event.key === ";") return setter("show", state.show === "given" ? "missing" : "given")();
  const image = state.shown[focusedTile()];
  if (event.key.toLowerCase() === "u" && image) return guarded(decide)([[image.number, state.tag, "unsure"]]);
  return false;
}

function imageKey(event) {
  if (event.key === "ArrowLeft") return guarded(move)(-1);
  if (event.key === "ArrowRight") return guarded(move)(1);
  const key = event.code.startsWith("Digit") ? event.code.slice(5) : event.key.toLowerCase();
  const place = key.length === 1 ? KEYS.indexOf(key) : -1;
  const image = state.shown[0];
  if (place < 0 || !image || place >= state.tags.length) return false;
  const tag = tagOrder(image)[place];
  return guarded(decide)([[image.number, tag, event.shiftKey ? "unsure" : flipped(image, tag)]]);
}

function anyKey(event) {
  if (event.key === "?") return at("help").showModal();
  if (event.key.toLowerCase() === "z") return guarded(undo)();
  if (event.key === ".") return setter("mode", state.mode === "single" ? "grid" : "single")();
  if (event.key === ",") return setter("order", state.order === "teach" ? "stored" : "teach")();
  if (event.key === "/") return at("search").focus();
  if (event.key === "Enter" && !event.target.closest("header, #question, footer")) return accept();
  return false;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || at("help").open) return;
  if (event.target === at("search")) {
    if (event.key === "Escape") at("search").blur();
    return;
  }
  const own = state.mode === "grid" ? gridKey : imageKey;
  if (own(event) !== false || anyKey(event) !== false) event.preventDefault();
});

// ---- start ----

at("mode-single").addEventListener("click", setter("mode", "single"));
at("mode-grid").addEventListener("click", setter("mode", "grid"));
at("order-teach").addEventListener("click", setter("order", "teach"));
at("order-stored").addEventListener("click", setter("order", "stored"));
at("show-given").addEventListener("click", setter("show", "given"));
at("show-missing").addEventListener("click", setter("show", "missing"));
at("tag-before").addEventListener("click", otherTag(-1));
at("tag-after").addEventListener("click", otherTag(1));
at("search").addEventListener("change", find);
at("help-open").addEventListener("click", () => at("help").showModal());
at("back").addEventListener("click", guarded(() => move(-1)));
at("next").addEventListener("click", guarded(() => move(1)));
at("undo").addEventListener("click", guarded(undo));
at("accept").addEventListener("click", accept);
at("picture").addEventListener("error", guarded(async () => {
  at("picture").hidden = true;
  at("no-picture").hidden = false;
  const answer = await fetch(at("picture").src);
  at("no-picture").textContent = answer.ok ? "cannot be shown" : await answer.text();
}));
window.addEventListener("focus", guarded(async () => { // another tab may have decided something
  if (!state.shown.length) return;
  const turn = state.turn;
  await saving;
  const shown = await details(state.shown.map((image) => image.number));
  if (turn !== state.turn) return;
  state.shown = shown;
  draw();
}));

guarded(async () => {
  const { run, tags, progress } = await ask("api/run");
  document.title = `${run} · fewtags review`;
  state.tags = tags;
  state.progress = progress;
  at("tags").replaceChildren(...tags.map((tag) => Object.assign(make("option"), { value: tag.name })));
  await loadQueue();
})();
