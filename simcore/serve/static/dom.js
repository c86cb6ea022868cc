// Short functions that create elements. Text is always inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== ""));
  return element;
}

/** An HTML element. */
export const h = (tag, attributes, ...children) =>
  fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const s = (tag, attributes, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/** A bar that fills a share of its width. */
export function bar(frac, kind = "") {
  const inner = h("span", { class: `bar ${kind}` });
  inner.style.width = `${(Math.min(Math.max(frac, 0), 1) * 100).toFixed(2)}%`;
  return h("span", { class: "track", "aria-hidden": "true" }, inner);
}

/** A table with a heading a row. On a narrow screen each row becomes a list of labelled cells, and
 * the roles keep it a table for screen readers. */
export function table(label, head, rows) {
  const cell = (content, i) => h(i ? "td" : "th", { scope: i ? null : "row",
    class: String(content).length < 12 ? "short" : null, role: i ? "cell" : "rowheader",
    "data-label": head[i] }, content);
  return h("table", { class: "plain", role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" },
      head.map((name) => h("th", { scope: "col", role: "columnheader" }, name)))),
    h("tbody", { role: "rowgroup" }, rows.map((row) => h("tr", { role: "row" }, row.map(cell)))));
}
