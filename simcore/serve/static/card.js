// Cards: the answer for one set-up, and the comparison of several.

import { bar, h } from "./dom.js";
import { memoryBar, stepBar, swatch } from "./charts.js";
import { LETTERS, differences } from "./state.js";

const HIDDEN = "communication_hidden";

/** Common scales of all cards, so that their bars are comparable: {step, memory}. */
export function scales(answers) {
  const there = answers.filter(Boolean);
  return {
    step: Math.max(...there.map((a) => a.step.high_s), 0),
    memory: Math.max(1.02, ...there.map((a) => Math.max(a.memory.device_frac, a.memory.high_frac))),
  };
}

function breakdown(title, lines, widest, kind) {
  const rows = lines.map((line) => h("tr", { class: line.part ? "part" : null },
    h("th", { scope: "row" }, kind === "memory" ? swatch(line.key) : "", line.label),
    h("td", { class: "bars" }, bar(line.frac / widest, line.key === HIDDEN ? "hollow" : kind)),
    h("td", { class: "number" }, line.text),
    h("td", { class: "number share" }, line.share)));
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

function heading(index, setup, first, answer) {
  const differs = index ? differences(setup, first) : [];
  return [
    h("h2", {}, h("span", { class: `letter series-${index}` }, LETTERS[index]), " ",
      answer ? `${answer.what}, on ${answer.cluster}` : `${setup.model} on ${setup.gpus}`),
    index
      ? h("p", { class: "muted" }, differs.length ? `differs from A: ${differs.join(", ")}` :
        "the same as A: change something")
      : "",
  ];
}

/** A card for an answer. `tools`: its buttons; `open`: keys of its opened sections. */
export function card({ index, setup, first, answer, scale, tools, open }) {
  const { step, memory } = answer;
  const widest = (lines) => Math.max(...lines.map((l) => l.frac), 1e-9);
  return h("article", { class: "panel card", "aria-label": `Set-up ${LETTERS[index]}` },
    h("header", {}, heading(index, setup, first, answer),
      h("p", { class: "muted" }, answer.settings, h("br"), answer.batch)),
    h("div", { class: "head" },
      h("section", { class: "step" }, h("h3", {}, "step time"),
        h("p", { class: "big", "data-step": step.value_s }, step.text),
        h("p", {}, step.interval, " ", h("span", { class: "muted" }, `(${step.origin})`)),
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
      breakdown(`where the memory goes (${memory.moment})`, memory.terms, widest(memory.terms),
        "memory"),
      whatIfs(answer),
      answer.measured.length
        ? h("section", {}, h("h3", {}, "measured"), h("ul", {}, answer.measured.map((text) =>
          h("li", {}, text))))
        : ""),
    more("assumed", `${answer.assumptions.length} assumptions`, open,
      h("ul", {}, answer.assumptions.map((text) => h("li", {}, text)))),
    more("text", "as on the command line", open,
      h("pre", { tabindex: 0, role: "region", "aria-label": "The same on the command line" },
        `$ ${answer.command}\n${answer.text}`)),
    tools);
}

/** A card for a set-up that cannot be predicted. */
export function problemCard({ index, setup, first, problems, tools }) {
  return h("article", { class: "panel card", "aria-label": `Set-up ${LETTERS[index]}` },
    h("header", {}, heading(index, setup, first, null)),
    h("p", { class: "verdict no" }, h("strong", {}, "✗ no answer")),
    h("ul", { class: "problems" }, problems.map((p) => h("li", {}, p.message))), tools);
}

/** A table with a column for every set-up and the main results in rows. */
export function sideBySide(entries, scale) {
  const rows = [
    ["", (a) => h("strong", { class: a.fits ? "fits" : "no" }, `${a.fits ? "✓" : "✗"} ${a.verdict.label}`)],
    ["step time", (a) => a.step.text, "step"],
    ["", (a) => [a.step.interval, stepBar(a.step, scale.step)]],
    ["memory", (a) => `${a.memory.text} of ${a.memory.limit}`],
    ["bound by", (a) => a.bound_by],
  ];
  const facts = [...new Set(entries.flatMap((e) => e.answer?.facts.map((f) => f.label) ?? []))];
  for (const label of facts) {
    rows.push([label.toLowerCase(), (a) => a.facts.find((f) => f.label === label)?.text ?? "-"]);
  }
  const first = entries[0].setup;
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Side by side" },
    h("table", { class: "side" },
      h("thead", {}, h("tr", {}, h("td", {}), entries.map((e, i) => h("th", { scope: "col" },
        h("span", { class: `letter series-${i}` }, LETTERS[i]), " ",
        i ? differences(e.setup, first).join(", ") || "the same as A"
          : `${e.setup.model} on ${e.setup.gpus}`)))),
      h("tbody", {}, rows.map(([label, of, kind], k) => h("tr", { class: kind ?? null },
        h("th", { scope: "row" }, label),
        entries.map((e) => h("td", {}, e.answer ? of(e.answer) : k ? "-" : "✗ no answer")))))));
}
