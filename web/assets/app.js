// The plain page: it lists topics, tails one over SSE and publishes to it.
// Everything that comes from a record is shown as text, never as markup.

const MAX_ROWS = 300; // in the page; what is older is dropped
const LAST = 100; // messages that "the last" shows
const MAX_SHOWN = 4000; // characters of a value
const RATE_SECONDS = 5;
const TOPICS_EVERY_MS = 5000;
const RETRY_MAX_MS = 20000;

const el = (id) => document.getElementById(id);
const text = (tag, className, content) => {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.textContent = content;
  return node;
};

// ---- calls ----

// A refused call becomes an Error whose message is the problem's detail.
const call = async (path, options) => (await send(path, options)).body;

async function send(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The node is not reachable.");
  }
  const body = await answer.text();
  let parsed = null;
  try {
    parsed = JSON.parse(body);
  } catch {
    // not JSON: the status says enough
  }
  if (!answer.ok) throw new Error(parsed?.detail || parsed?.title || `The node answered ${answer.status}.`);
  return { status: answer.status, body: parsed };
}

function note(id, message, bad = false) {
  el(id).textContent = message;
  el(id).classList.toggle("bad", bad);
}

// ---- topics ----

let topics = [];
let current = decodeURIComponent(location.hash.slice(1));

async function loadTopics() {
  try {
    topics = (await call("/topics/")).topics ?? [];
  } catch (e) {
    if (!tail.source) setState("failed", e.message);
    return false;
  }
  topics.sort((a, b) => a.name.localeCompare(b.name));
  showTopics();
  return true;
}

// recordsOf counts what is kept, as far as the leaders of partitions said: 12+ where
// some did not.
function recordsOf(topic) {
  const all = topic.layout?.partitions ?? [];
  const known = all.filter((p) => p.hw !== null);
  const n = known.reduce((sum, p) => sum + p.hw - p.earliest, 0);
  return n.toLocaleString() + (known.length < all.length ? "+" : "");
}

function showTopics() {
  const focused = document.activeElement?.dataset?.topic;
  const items = topics.map((topic) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.topic = topic.name;
    button.setAttribute("aria-current", String(topic.name === current));
    button.append(text("span", "", topic.name), text("small", "", recordsOf(topic)));
    button.title = `${topic.layout?.partitions?.length ?? "?"} partitions`;
    button.addEventListener("click", () => choose(topic.name));
    const item = document.createElement("li");
    item.append(button);
    return item;
  });
  el("topics").replaceChildren(...items);
  if (focused) [...el("topics").querySelectorAll("button")].find((b) => b.dataset.topic === focused)?.focus();
  const none = topics.length === 0;
  el("empty").hidden = !none;
  if (none) {
    el("create-box").open = true;
    el("stream").hidden = true;
    if (tail.source || tail.timer) stop();
    setState("idle", "Idle");
  } else if (!topics.some((t) => t.name === current)) {
    choose((topics.find((t) => !t.name.startsWith("_")) ?? topics[0]).name);
  } else if (el("stream").hidden) {
    choose(current);
  }
}

function choose(name) {
  current = name;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  for (const b of el("topics").querySelectorAll("button")) b.setAttribute("aria-current", String(b.dataset.topic === name));
  el("stream").hidden = false;
  el("stream-title").textContent = name;
  document.title = `${name} – Tidewire`;
  note("publish-note", "");
  el("from").value = "latest";
  clear();
  start();
}

el("create").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = el("create-name").value.trim();
  let answer;
  try {
    answer = await send("/topics/", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ name, partitions: Number(el("create-partitions").value) }),
    });
  } catch (e) {
    note("create-note", e.message, true);
    return;
  }
  note("create-note", answer.status === 201 ? `${name} is created.` : `${name} already existed.`);
  el("create-name").value = "";
  await loadTopics();
  choose(name);
  el("publish-value").focus();
});

// ---- the tail ----

// seen has the last offset shown of each partition: a stream over several
// partitions may repeat a little when it resumes, and the page does not.
const tail = { source: null, cursor: "", begin: {}, seen: new Map(), timer: 0, attempt: 0 };

function setState(name, words) {
  const state = el("state");
  if (state.dataset.state === name && state.textContent === words) return;
  state.dataset.state = name;
  state.textContent = words;
}

function stop() {
  tail.source?.close();
  clearTimeout(tail.timer);
  tail.source = null;
  tail.timer = 0;
}

// start tails the chosen topic from where Show says.
async function start() {
  stop();
  setState("connecting", "Connecting");
  tail.cursor = "";
  tail.seen.clear();
  tail.attempt = 0;
  const from = el("from").value;
  const begin = (tail.begin = { from: from === "last" ? "earliest" : from });
  if (from === "last") {
    try {
      const found = await findLast();
      if (begin !== tail.begin) return; // something else was chosen meanwhile
      Object.assign(begin, found.begin);
      found.messages.forEach(receive);
    } catch (e) {
      if (begin !== tail.begin) return;
      begin.from = "latest"; // the stream says what is wrong, and goes on trying
      setState("failed", e.message);
    }
  }
  open();
}

// findLast finds where the last messages begin. There is no order between
// partitions, so each gives its share, and those with less leave the rest to the
// others. The cursor comes with a first message, which is shown if it is one of them.
async function findLast() {
  const topic = `/topics/${encodeURIComponent(current)}`;
  const { layout } = await call(`${topic}/metadata`);
  const unknown = layout.partitions.find((p) => p.hw === null);
  if (unknown) throw new Error(`nobody says at the moment where partition ${unknown.id} ends`); // not at 0: all of it would come
  const kept = (p) => p.hw - p.earliest;
  const partitions = [...layout.partitions].sort((a, b) => kept(a) - kept(b));
  const first = new Map();
  let left = LAST;
  partitions.forEach((p, i) => {
    const share = Math.min(kept(p), Math.floor(left / (partitions.length - i)));
    left -= share;
    first.set(p.id, p.hw - share);
  });
  const cut = partitions.filter((p) => first.get(p.id) > p.earliest);
  if (cut.length === 0) return { begin: { from: "earliest" }, messages: [] };
  const page = await call(`${topic}?${filtered({ from: "earliest", limit: 1 })}`);
  return {
    begin: { from: undefined, cursor: page.cursor, after: cut.map((p) => `${p.id}:${first.get(p.id) - 1}`).join() },
    messages: page.messages.filter((m) => m.offset >= first.get(m.partition)),
  };
}

// filtered is a query with what the key field asks for.
function filtered(place) {
  const query = new URLSearchParams(Object.entries(place).filter(([, value]) => value !== undefined));
  const key = el("filter-key").value;
  if (key.endsWith("*") && key.length > 1) query.set("key_prefix", key.slice(0, -1));
  else if (key && key !== "*") query.set("key", key);
  return query;
}

const address = () => `/topics/${encodeURIComponent(current)}/events?${filtered(tail.cursor ? { cursor: tail.cursor } : tail.begin)}`;

function open() {
  stop();
  setState(tail.attempt || tail.cursor ? "reconnecting" : "connecting", tail.attempt || tail.cursor ? "Reconnecting" : "Connecting");
  const source = new EventSource(address());
  tail.source = source;
  const on = (type, handle) =>
    source.addEventListener(type, (event) => {
      if (source !== tail.source) return; // of a stream that was left
      if (event.lastEventId) tail.cursor = event.lastEventId;
      handle(event.data);
    });
  source.onopen = () => {
    if (source !== tail.source) return;
    tail.attempt = 0;
    showLive();
  };
  source.onerror = () => {
    if (source !== tail.source) return;
    if (source.readyState === EventSource.CONNECTING) setState("reconnecting", "Reconnecting"); // by itself
    else retry(); // an answer that was no stream, or the word that this one has ended for good
  };
  on("message", (data) => receive(JSON.parse(data)));
  on("gap", (data) => showGap(JSON.parse(data)));
  on("closing", () => setState("reconnecting", "The node is closing; reconnecting"));
}

// The wait is random up to a bound that doubles, so that the pages of a node
// that comes back do not all return at once.
function retry() {
  stop();
  const bound = Math.min(RETRY_MAX_MS, 500 * 2 ** tail.attempt++);
  setState("reconnecting", "Reconnecting");
  tail.timer = setTimeout(async () => {
    tail.timer = -1; // busy
    const reachable = await loadTopics();
    if (tail.timer !== -1) return; // something else was chosen meanwhile
    tail.timer = 0;
    if (reachable && topics.some((t) => t.name === current)) open();
    else if (!reachable) retry();
  }, Math.random() * bound);
}

function showLive() {
  if (paused) setState("paused", `Paused, ${held.length.toLocaleString()} waiting`);
  else setState("live", "Live");
}

// ---- messages ----

let paused = false;
let held = []; // arrived while paused, the newest last, at most MAX_ROWS
let fresh = []; // to be shown with the next frame
let received = 0;
const perSecond = new Array(RATE_SECONDS).fill(0);

function receive(message) {
  const last = tail.seen.get(message.partition);
  if (last !== undefined && message.offset <= last) return;
  tail.seen.set(message.partition, message.offset);
  received++;
  perSecond[0]++;
  keep(() => row(message));
}

// keep queues a row to be made; at most MAX_ROWS are ever waiting.
function keep(make) {
  const queue = paused ? held : fresh;
  queue.push(make);
  if (queue.length > MAX_ROWS) queue.shift();
  if (!paused && fresh.length === 1) requestAnimationFrame(show);
}

function show() {
  const rows = fresh.map((make) => make()).reverse();
  fresh = [];
  const feed = el("feed");
  feed.prepend(...rows);
  while (feed.childElementCount > MAX_ROWS) feed.lastElementChild.remove();
  el("quiet").hidden = feed.childElementCount > 0;
  el("count").textContent = received.toLocaleString();
}

function row(m) {
  const item = document.createElement("li");
  const time = text("time", "", new Date(m.timestamp).toLocaleTimeString([], { hour12: false }));
  time.dateTime = m.timestamp;
  time.title = m.timestamp;
  const place = text("span", "place", `${m.partition} : ${m.offset}`);
  place.title = `partition ${m.partition}, offset ${m.offset}`;
  const key = text("span", "key", m.key ?? "");
  const [words, odd] = valueOf(m);
  const value = text("span", odd ? "value odd" : "value", words);
  value.title = m.content_type ?? "";
  item.append(time, place, key, value);
  return item;
}

function valueOf(m) {
  if (m.tombstone) return ["tombstone: the key's record is deleted", true];
  if (m.value_base64 !== undefined) {
    const bytes = Math.floor((m.value_base64.replace(/=+$/, "").length * 3) / 4);
    return [`${bytes.toLocaleString()} bytes of ${m.content_type}`, true];
  }
  const words = typeof m.value === "string" ? m.value : JSON.stringify(m.value);
  return words.length > MAX_SHOWN ? [`${words.slice(0, MAX_SHOWN)}…`, false] : [words, false];
}

const GAPS = {
  expired: "they are not kept any more",
  truncated: "they are not part of the log any more",
  "other-topic": "the topic is another one by now",
  unknown: "the place to go on from is not known",
};

function showGap(gap) {
  if (gap.cursor) tail.cursor = gap.cursor;
  tail.seen.clear(); // the offsets may be another log's
  const why = GAPS[gap.reason] ?? gap.reason;
  const kept = gap.earliest ? ` Kept from ${gap.earliest} on (partition:offset).` : "";
  keep(() => text("li", "gap", `Gap: records are missing here, for ${why}.${kept}`));
}

function clear() {
  received = 0;
  perSecond.fill(0);
  held = [];
  fresh = [];
  el("feed").replaceChildren();
  el("quiet").hidden = false;
  showFigures();
}

function showFigures() {
  el("count").textContent = received.toLocaleString();
  const n = perSecond.reduce((a, b) => a + b, 0) / RATE_SECONDS;
  el("rate").textContent = n.toLocaleString([], { maximumFractionDigits: n < 10 ? 1 : 0 });
}

el("pause").addEventListener("click", () => {
  paused = !paused;
  el("pause").setAttribute("aria-pressed", String(paused));
  el("pause").textContent = paused ? "Go on" : "Pause";
  if (!paused) {
    const waiting = held;
    held = [];
    for (const make of waiting) keep(make);
  }
  if (tail.source?.readyState === EventSource.OPEN) showLive();
});
el("clear").addEventListener("click", clear);
el("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  clear();
  start();
});
el("from").addEventListener("change", () => el("filter").requestSubmit());
el("filter-key").addEventListener("search", () => el("filter").requestSubmit()); // the field's own clear button

// ---- publish ----

el("publish").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = event.submitter ?? el("publish").querySelector("button");
  const key = el("publish-key").value;
  const body = el("publish-value").value;
  let type = "text/plain; charset=utf-8";
  try {
    JSON.parse(body);
    type = "application/json";
  } catch {
    // text, then
  }
  button.disabled = true;
  try {
    const query = key ? `?${new URLSearchParams({ key })}` : "";
    const kept = await call(`/topics/${encodeURIComponent(current)}${query}`, {
      method: "POST",
      headers: { "Content-Type": type },
      body,
    });
    note("publish-note", `Kept in partition ${kept.partition} at offset ${kept.offset}.`);
    el("publish-value").select();
  } catch (e) {
    note("publish-note", e.message, true);
  } finally {
    button.disabled = false;
  }
});
el("publish-value").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) el("publish").requestSubmit();
});

// ---- clock ----

setInterval(() => {
  showFigures();
  perSecond.unshift(0);
  perSecond.pop();
  if (paused && tail.source?.readyState === EventSource.OPEN) showLive();
}, 1000);
setInterval(() => {
  if (!document.hidden) loadTopics();
}, TOPICS_EVERY_MS);
window.addEventListener("hashchange", () => {
  const name = decodeURIComponent(location.hash.slice(1));
  if (name !== current && topics.some((t) => t.name === name)) choose(name);
});
window.addEventListener("pagehide", stop);
loadTopics();
