// The headline: the main results of every set-up, one below the other, the best of each marked.

import { h } from "./dom.js";
import { LETTERS, differences } from "./state.js";

/** For each label the best value of the answers that fit, where they differ and count the same. */
function bests(answers) {
  const all = answers.filter((a) => a?.fits).flatMap((a) => a.tiles);
  const found = {};
  for (const { label, unit, value, most } of all) {
    const same = all.filter((t) => t.label === label && t.value !== null);
    const values = same.map((t) => t.value);
    if (value === null || same.length < 2 || same.some((t) => t.unit !== unit)) continue;
    const best = most ? Math.max(...values) : Math.min(...values);
    if (values.some((v) => v !== best)) found[label] = best;
  }
  return found;
}

function tile({ label, text, more, value }, best, fits) {
  const step = label === "step time";
  return h("div", { class: best ? "tile best" : "tile" },
    h("dt", {}, label, best ? h("span", { class: "badge" }, "best") : ""),
    h("dd", {}, h("span", { class: step ? "big" : "main", "data-value": value }, text),
      fits === undefined ? "" : h("strong", { class: fits ? "fits" : "no" },
        fits ? " ✓ FITS" : " ✗ DOES NOT FIT"),
      h("span", { class: "muted" }, more)));
}

/** The headline of all set-ups. `go(field)`: focuses a control. */
export function headline(entries, go) {
  const best = bests(entries.map((e) => e.answer));
  const first = entries[0].setup;
  return entries.map(({ setup, answer, problems, stale }, i) => {
    const differs = i ? differences(setup, first).join(", ") || "nothing yet" : "";
    return h("section", { "data-setup": i, "aria-label": `Set-up ${LETTERS[i]}`,
      "aria-busy": String(Boolean(stale || !(answer || problems))) },
    h("h2", {}, h("span", { class: `letter series-${i}` }, LETTERS[i]), " ",
      answer && !i ? `${answer.what}, on ${answer.cluster}` : `${setup.model} on ${setup.gpus}`),
    i ? h("p", { class: "muted" }, `differs from A in: ${differs}`) : "",
    answer
      ? h("dl", { class: "tiles" }, answer.tiles.map((t) => tile(t,
        answer.fits && t.value !== null && best[t.label] === t.value,
        t.label.startsWith("memory") ? answer.fits : undefined)))
      : problems
        ? [h("p", { class: "verdict no" }, h("strong", {}, "✗ no answer")),
          h("ul", { class: "problems" }, problems.map((p) => h("li", {}, p.message, " ",
            p.field ? h("button", { type: "button", class: "link", onclick: () => go(p.field) },
              "show the field") : "")))]
        : h("p", { class: "muted" }, "computing …"));
  });
}
