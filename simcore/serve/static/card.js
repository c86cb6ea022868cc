// Cards: the details of the answer for one set-up.

import { bar, h } from "./dom.js";
import { memoryBar, stepBar, swatch } from "./charts.js";
import { get } from "./server.js";
import { LETTERS, query } from "./state.js";

const HIDDEN = "communication_hidden";

/** Common scales of all cards, so that their bars are comparable: {step, memory}. */
export function scales(answers) {
  const there = answers.filter(Boolean);
  return {
    step: Math.max(...there.map((a) => a.step.high_s), 0),
    memory: Math.max(1.02, ...there.map((a) => Math.max(a.memory.device_frac, a.memory.high_frac))),
  };
}

function breakdown(title, lines, widest, kind, whole) {
  const rows = lines.map((line) => h("tr", { class: line.part ? "part" : null },
    h("th", { scope: "row" }, kind === "memory" ? swatch(line.key) : "", line.label),
    h("td", { class: "bars" }, bar(line.frac / widest, line.key === HIDDEN ? "hollow" : kind)),
    h("td", { class: "number" }, line.text),
    h("td", { class: "number share" }, line.share)));
  if (whole) {
    rows.push(h("tr", { class: "whole" }, h("th", { scope: "row" }, "together"), h("td", {}),
      h("td", { class: "number" }, whole), h("td", {})));
  }
  return h("section", {}, h("h3", {}, title),
    h("table", { class: "breakdown" }, h("tbody", {}, rows)));
}

function whatIfs(answer) {
  const widest = Math.max(...answer.what_if.map((w) => w.gain_frac), 1e-9);
  const rows = answer.what_if.filter((w) => w.worth).map((w) => h("tr", {},
    h("th", { scope: "row" }, `x2 ${w.resource}`),
    h("td", { class: "bars" }, bar(w.gain_frac / widest, "gain")),
    h("td", { class: "number" }, w.step),
    h("td", { class: "number share" }, w.change)));
  return h("section", {}, h("h3", {}, "bound by ", h("strong", {}, answer.bound_by)),
    rows.length
      ? h("table", { class: "breakdown gains" }, h("tbody", {}, rows))
      : h("p", { class: "muted" }, "doubling any one resource gains almost nothing"));
}

function more(key, title, open, ...children) {
  const found = h("details", { "data-key": key, open: open.has(key) }, h("summary", {}, title),
    ...children);
  found.addEventListener("toggle", () => open[found.open ? "add" : "delete"](key));
  return found;
}

/** The peak by the names of PyTorch and nvidia-smi, asked for when it is opened. */
function counted(setup, open) {
  const list = h("dl", { class: "named" });
  const shown = more("counted", "as PyTorch and nvidia-smi count it", open, list);
  shown.addEventListener("toggle", async () => {
    if (!shown.open || list.children.length) return;
    const facts = await get("memory", query(setup)).catch(() => []);
    list.replaceChildren(...facts.map((f) => h("div", {}, h("dt", {}, f.label), h("dd", {}, f.text))));
  });
  return shown;
}

/** A card for an answer. `tools`: its buttons; `open`: keys of its opened sections. */
export function card({ index, setup, answer, scale, tools, open, stale }) {
  const { step, memory } = answer;
  const widest = (lines) => Math.max(...lines.map((l) => l.frac), 1e-9);
  return h("article", { class: "panel card", "aria-label": `Set-up ${LETTERS[index]}`,
    "data-setup": index, "aria-busy": String(Boolean(stale)) },
  h("header", {}, h("h2", {}, h("span", { class: `letter series-${index}` }, LETTERS[index]), " ",
    answer.settings), h("p", { class: "muted" }, answer.batch)),
  h("div", { class: "head" },
    h("section", { class: "step" }, h("h3", {}, "step time"),
      h("p", {}, step.text, ", ", step.interval, " ", h("span", { class: "muted" }, `(${step.origin})`)),
      stepBar(step, scale.step)),
    h("section", {}, h("h3", {}, "memory of the fullest GPU"),
      h("p", { class: answer.fits ? "verdict fits" : "verdict no" },
        h("strong", {}, `${answer.fits ? "✓" : "✗"} ${answer.verdict.label}`), " ",
        answer.verdict.text),
      [answer.fixes, answer.elsewhere].filter(Boolean).map((text) => h("p", {}, text)),
      memoryBar(memory, scale.memory))),
  h("dl", { class: "facts" }, answer.facts.map((f) => h("div", {}, h("dt", {}, f.label.toLowerCase()),
    h("dd", {}, f.text)))),
  h("div", { class: "columns" },
    breakdown("where the time goes", answer.time, widest(answer.time), "time"),
    h("div", {},
      breakdown(`where the memory goes (${memory.moment})`, memory.terms, widest(memory.terms),
        "memory", memory.text),
      counted(setup, open)),
    whatIfs(answer),
    answer.measured.length
      ? h("section", {}, h("h3", {}, "measured"), h("ul", {}, answer.measured.map((text) =>
        h("li", {}, text))))
      : ""),
  more("assumed", `${answer.assumptions.length} assumptions`, open,
    h("ul", {}, answer.assumptions.map((text) => h("li", {}, text)))),
  more("text", "as on the command line", open,
    h("pre", { tabindex: 0, role: "region", "aria-label":
      `Set-up ${LETTERS[index]} on the command line` }, `$ ${answer.command}\n${answer.text}`)),
  tools);
}
