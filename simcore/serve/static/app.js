// The page: connects the form, the server and the cards of answers.

import { card, problemCard, scales, sideBySide } from "./card.js";
import { patterns, scalingChart, scalingTable } from "./charts.js";
import { Controls } from "./controls.js";
import { h } from "./dom.js";
import { Planner } from "./plan.js";
import { Wrong, download, get, upload } from "./server.js";
import { LETTERS, fromQuery, query, toQuery } from "./state.js";

const LINK_MS = 100;
const SAID_MS = 600;
const $ = (id) => document.getElementById(id);

/** Set-ups and their results: {setup, answer, curve, problems, open, running, dirty}. */
let entries = [];
let active = 0;
let controls;
let choices = {};
let linkTimer;
let saidTimer;

const entry = (setup) => ({ setup, answer: null, curve: null, problems: null, open: new Set() });

// -- requests -------------------------------------------------------------------------------------

/** Request predictions until the newest state of an entry is answered; outdated answers are dropped. */
async function ask(item, started = 0) {
  item.started ??= started; // time of the first change that is not answered yet
  item.dirty = true;
  if (item.running) return;
  item.running = true;
  while (item.dirty) {
    item.dirty = false;
    const said = query(item.setup);
    try {
      const answer = await (item.early ?? get("answer", said));
      item.early = null;
      Object.assign(item, { answer, problems: null });
    } catch (err) {
      item.early = null;
      Object.assign(item, { answer: null, curve: null, problems: problemsOf(err) });
    }
    if (item.dirty) continue;
    render();
    timed(item);
    if (!item.answer) continue;
    try {
      const curve = await get("scaling", said);
      if (!item.dirty) item.curve = curve;
    } catch {
      item.curve = null;
    }
    if (!item.dirty) renderScaling();
  }
  item.running = false;
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

function render() {
  const scale = scales(entries.map((e) => e.answer));
  const first = entries[0].setup;
  const cards = entries.map((item, index) => {
    const common = { index, setup: item.setup, first, tools: tools(item, index) };
    if (item.answer) return card({ ...common, answer: item.answer, scale, open: item.open });
    return item.problems ? problemCard({ ...common, problems: item.problems }) :
      h("article", { class: "panel card" }, h("p", { class: "muted" }, "predicting …"));
  });
  $("cards").replaceChildren(...cards);
  $("side").hidden = entries.length < 2;
  if (entries.length > 1) $("side-table").replaceChildren(sideBySide(entries, scale));
  const now = entries[active];
  controls.problems(now.problems ?? []);
  if (now.answer) controls.defaults(now.answer);
  renderScaling();
  summarise(now);
  tell();
}

/** On a narrow screen the answer is below the form, so a line that stays visible summarises it. */
function summarise({ answer, problems }) {
  const text = answer
    ? [h("strong", {}, `${answer.fits ? "✓" : "✗"} ${answer.verdict.label}`), ` step ${answer.step.text}, `,
      `${answer.memory.text} of ${answer.memory.limit}`]
    : [problems ? "✗ no answer" : "predicting …"];
  $("summary").replaceChildren(`${LETTERS[active]} `, ...text);
}

function renderScaling() {
  const curves = entries.map((e) => e.curve ?? { points: [], left_out: [] });
  $("scaling").hidden = !curves.some((c) => c.points.length);
  $("scaling-chart").replaceChildren(scalingChart(curves, chartWidth()));
  $("scaling-table").replaceChildren(...scalingTable(curves));
}

/** Width of the chart: that of its container, so that text keeps its size. */
const chartWidth = () => Math.min($("scaling-chart").clientWidth || $("cards").clientWidth, 860);

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
    note.textContent = "";
    try {
      const left = await download(endpoint, query(item.setup) + more);
      if (left) note.textContent = `not in this file, set them when you launch: ${left}`;
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

const writeLink = () =>
  history.replaceState(null, "", `?${toQuery(entries.map((e) => e.setup))}`);

function choose(index) {
  active = index;
  renderTabs();
  controls.show(entries[active].setup);
  render();
}

function addOne() {
  const { setup, answer, curve, problems, running } = entries[active];
  entries.push({ ...entry({ ...setup }), answer, curve, problems });
  choose(entries.length - 1);
  link();
  if (running) ask(entries[active], performance.now()); // the copied answer may be outdated
}

/** Show an option of a plan as the set-up that is edited. */
function opened(setup) {
  controls.show(setup);
  changed(setup, performance.now());
  $("results").focus();
}

function removeOne() {
  entries.splice(active, 1);
  choose(Math.min(active, entries.length - 1));
  link();
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
  new Planner($("plan"), () => entries[active].setup, opened);
  addEventListener("resize", renderScaling);
}

start().catch((err) => {
  $("cards").replaceChildren(h("p", { class: "error" }, err.message));
  if (!(err instanceof Wrong)) throw err;
});
