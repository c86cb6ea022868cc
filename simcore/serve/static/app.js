// The page: connects the form, the server and the results.

import { card, scales } from "./card.js";
import { patterns, scalingChart, scalingTable } from "./charts.js";
import { Controls } from "./controls.js";
import { h } from "./dom.js";
import { headline } from "./headline.js";
import { Planner } from "./plan.js";
import { Wrong, download, get, upload } from "./server.js";
import { LETTERS, fromQuery, query, toQuery } from "./state.js";
import { Sweeper } from "./sweep.js";
import { views } from "./views.js";

const LINK_MS = 100;
const SAID_MS = 600;
const $ = (id) => document.getElementById(id);

/** Set-ups and their results: {setup, answer, curve, problems, open, running, dirty, stale}. */
let entries = [];
let active = 0;
let controls;
let panels = [];
let choices = {};
let linkTimer;
let saidTimer;

const entry = (setup) => ({ setup, answer: null, curve: null, problems: null, open: new Set() });

// -- requests -------------------------------------------------------------------------------------

/** Request predictions until the newest state of an entry is answered; outdated answers are dropped. */
async function ask(item, started = 0) {
  item.started ??= started; // time of the first change that is not answered yet
  item.dirty = item.stale = true;
  busy();
  if (item.running) return;
  item.running = true;
  try {
    while (item.dirty) await answered(item);
  } finally {
    item.running = false;
  }
}

async function answered(item) {
  item.dirty = false;
  const said = query(item.setup);
  let found;
  try {
    found = { answer: await (item.early ?? get("answer", said)), problems: null };
  } catch (err) {
    found = { answer: null, curve: null, problems: problemsOf(err) };
  }
  item.early = null;
  if (item.dirty) return;
  Object.assign(item, found, { stale: false });
  render();
  timed(item);
  if (!item.answer) return;
  const curve = await get("scaling", said).catch(() => null);
  if (item.dirty) return;
  Object.assign(item, { curve, of: said });
  renderScaling();
}

const problemsOf = (err) => {
  if (err instanceof Wrong) return err.problems;
  throw err;
};

/** Record the time from a change of a control to the painted answer, for tests. */
function timed(item) {
  const start = item.started;
  item.started = null;
  requestAnimationFrame(() => setTimeout(() => {
    const name = performance.getEntriesByName("first-answer").length ? "update" : "first-answer";
    performance.measure(name, { start: name === "update" ? start : 0, end: performance.now() });
  }));
}

// -- display --------------------------------------------------------------------------------------

/** Mark what does not belong to the present set-ups: the style dims what stays so for 150 ms. */
function busy() {
  for (const shown of document.querySelectorAll("[data-setup]")) {
    shown.setAttribute("aria-busy", String(Boolean(entries[shown.dataset.setup]?.stale)));
  }
  const old = entries.some((e) => e.stale || (e.answer && e.of !== query(e.setup)));
  $("scaling").setAttribute("aria-busy", String(old));
  for (const panel of panels) panel.moved();
}

function render() {
  const scale = scales(entries.map((e) => e.answer));
  $("headline").replaceChildren(...headline(entries, (field) => controls.go(field)));
  $("cards").replaceChildren(...entries.flatMap((item, index) => (item.answer
    ? [card({ index, scale, tools: tools(item, index), ...item })] : [])));
  const now = entries[active];
  controls.problems(now.problems ?? []);
  if (now.answer) controls.defaults(now.answer);
  renderScaling();
  summarise(now);
  tell();
}

/** On a narrow screen a line sums the answer up while the headline is out of sight. */
function summarise({ answer, problems }) {
  const text = answer
    ? [h("strong", {}, answer.fits ? "✓ FITS" : "✗ DOES NOT FIT"),
      ` step ${answer.step.text}, ${answer.memory.text} of ${answer.memory.limit}`]
    : [problems ? "✗ no answer" : "computing …"];
  $("summary").dataset.setup = active;
  $("summary").replaceChildren(h("span", {}, `${LETTERS[active]} `, ...text));
}

function renderScaling() {
  const curves = entries.map((e) => e.curve ?? { points: [], left_out: [] });
  $("scaling").hidden = !curves.some((c) => c.points.length);
  $("scaling-chart").replaceChildren(scalingChart(curves, chartWidth()));
  $("scaling-table").replaceChildren(...scalingTable(curves));
  busy();
}

/** Width of the chart: that of its container, so that text keeps its size. */
const chartWidth = () => Math.min($("scaling-chart").clientWidth || $("results").clientWidth - 40, 860);

/** Announce the answer to screen readers, once it no longer changes. */
function tell() {
  clearTimeout(saidTimer);
  saidTimer = setTimeout(() => {
    const { answer, problems } = entries[active];
    $("status").textContent = answer
      ? `${LETTERS[active]}: ${answer.verdict.label}, step ${answer.step.text}`
      : (problems ?? []).map((p) => p.message).join("; ");
  }, SAID_MS);
}

function renderTabs() {
  const tabs = entries.map((_, i) => h("button", { type: "button", class: "tab",
    "aria-pressed": String(i === active), onclick: () => choose(i) }, `Set-up ${LETTERS[i]}`));
  const add = h("button", { type: "button", onclick: addOne,
    disabled: entries.length >= LETTERS.length }, "+ Compare");
  const remove = h("button", { type: "button", onclick: removeOne },
    `Remove ${LETTERS[active]}`);
  $("tabs").replaceChildren(...tabs, add, ...(entries.length > 1 ? [remove] : []));
}

/** Buttons for downloads and the link, with a line for errors. */
function tools(item, index) {
  const note = h("p", { class: "note", role: "status" });
  const name = LETTERS[index];
  const save = async (endpoint, more = "") => {
    note.textContent = "computing …";
    try {
      const left = await download(endpoint, query(item.setup) + more);
      note.textContent = left ? `not in this file, set them when you launch: ${left}` : "";
    } catch (err) {
      note.textContent = problemsOf(err).map((p) => p.message).join("; ");
    }
  };
  const button = (text, act) => h("button", { type: "button", onclick: act,
    "aria-label": `${text} of set-up ${name}` }, text);
  const dialect = h("select", { "aria-label": `Launch file format of set-up ${name}`,
    onchange: () => { item.dialect = dialect.value; } },
  (choices.emit ?? []).map((d) => h("option", { value: d, selected: d === item.dialect }, d)));
  return h("footer", { class: "tools" },
    button("Copy link", async () => {
      writeLink();
      try {
        await navigator.clipboard.writeText(location.href);
        note.textContent = "copied";
      } catch {
        note.textContent = "copy the address of this page: it is the link";
      }
    }),
    button("JSON", () => save("predict")),
    button("HTML report", () => save("report")),
    button("Trace", () => save("trace")),
    h("span", { class: "together" }, dialect,
      button("Launch file", () => save("launch", `&dialect=${dialect.value}`))),
    note);
}

// -- changes --------------------------------------------------------------------------------------

function link() {
  clearTimeout(linkTimer);
  linkTimer = setTimeout(writeLink, LINK_MS);
}

const writeLink = () => history.replaceState(null, "",
  `?${toQuery(entries.map((e) => e.setup))}${location.hash}`);

function choose(index) {
  active = index;
  renderTabs();
  controls.show(entries[active].setup);
  render();
}

function addOne() {
  const { setup, answer, curve, problems, running, of } = entries[active];
  entries.push({ ...entry({ ...setup }), answer, curve, problems, of });
  choose(entries.length - 1);
  link();
  if (running) ask(entries[active], performance.now()); // the copied answer may be outdated
}

function removeOne() {
  entries.splice(active, 1);
  choose(Math.min(active, entries.length - 1));
  link();
}

/** Take over a cell of the map or an option of a plan as the set-up that is edited. */
function opened(setup) {
  controls.show(setup);
  changed(setup, performance.now());
}

function changed(setup, started) {
  entries[active].setup = setup;
  link();
  ask(entries[active], started);
}

async function sent(kind, file) {
  const field = `${kind}_file`;
  try {
    const found = await upload(kind, file);
    controls.offer(found.kind, found.name, found.shown);
  } catch (err) {
    controls.problems(problemsOf(err).map((p) => ({ ...p, field })));
  }
}

async function start() {
  entries = fromQuery(location.search).slice(0, LETTERS.length).map(entry);
  const named = Promise.all([get("choices"), get("controls")]);
  for (const item of entries) item.early = get("answer", query(item.setup));
  for (const item of entries) item.early.catch(() => {}); // ask() handles the error
  $("patterns").append(...patterns());
  const [names, groups] = await named;
  choices = names;
  controls = new Controls($("controls"), groups, choices, changed, sent);
  renderTabs();
  controls.show(entries[active].setup);
  for (const item of entries) ask(item);
  const setup = () => entries[active].setup;
  panels = [new Sweeper($("sweep"), controls.items, setup, opened),
    new Planner($("plan"), setup, opened)];
  views($("views"), (name) => {
    history.replaceState(null, "",
      `${location.pathname}${location.search}${name === "answer" ? "" : `#${name}`}`);
    renderScaling(); // its width is known when it is shown
  })(location.hash.slice(1));
  addEventListener("resize", renderScaling);
  new IntersectionObserver(([seen]) => {
    $("summary").hidden = seen.isIntersecting;
  }).observe($("headline"));
}

start().catch((err) => {
  $("headline").replaceChildren(h("p", { class: "error" }, err.message));
  if (!(err instanceof Wrong)) throw err;
});
