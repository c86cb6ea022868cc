// The map: the set-up over the values of two options. Every cell opens as the set-up.

import { h } from "./dom.js";
import { Wrong, get } from "./server.js";
import { query } from "./state.js";

const LEVELS = 8;
const NARROW = 480; // pixels
const COLOURS = { rate_per_s: "throughput", memory_bytes: "memory a GPU" };
const AXES = { x: "tp", y: "pp" };

/** The map's panel. `controls`: the form's controls, of which some propose `values`; `setup()`: the
 * set-up that is edited; `open(setup)`: shows another one. */
export class Sweeper {
  constructor(root, controls, setup, open) {
    Object.assign(this, { setup, open, controls: controls.filter((c) => c.values) });
    this.select = {};
    this.values = {};
    const axis = (which, title) => {
      this.select[which] = h("select", { id: `sweep-${which}`,
        onchange: () => { this.propose(which); } }, this.controls.map((c) =>
        h("option", { value: c.name, selected: c.name === AXES[which] }, c.label)));
      this.values[which] = h("input", { id: `sweep-${which}-values`, type: "text", maxlength: 100,
        spellcheck: "false", "aria-describedby": "sweep-how" });
      return [field(this.select[which], title), field(this.values[which], "its values")];
    };
    const field = (input, label) =>
      h("div", { class: "field" }, h("label", { for: input.id }, label), input);
    const fields = [...axis("x", "Across"), ...axis("y", "Down")];
    this.colour = h("select", { id: "sweep-colour", onchange: () => this.found && this.draw() },
      Object.entries(COLOURS).map(([value, text]) => h("option", { value }, text)));
    this.button = h("button", { type: "submit" }, "Sweep");
    this.error = h("div", { role: "alert" });
    this.shown = h("div", { id: "sweep-found" });
    root.append(h("form", { class: "fields map-form", autocomplete: "off", novalidate: true,
      "aria-label": "Sweep", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
    fields, field(this.colour, "Colour"), h("div", { class: "field bare" }, this.button)),
    this.error, this.shown);
    for (const which of ["x", "y"]) this.propose(which);
  }

  propose(which) {
    const { value } = this.select[which];
    this.values[which].value = this.controls.find((c) => c.name === value).values;
  }

  /** What the map is of: the set-up without its axes. */
  of(axes) {
    const rest = { ...this.setup() };
    if (rest.software === "auto") delete rest.software; // cells that divide the model add it
    for (const name of axes.includes("nodes") ? [...axes, "gpus"] : axes) delete rest[name];
    return query(rest);
  }

  async ask() {
    const [x, y] = [this.select.x.value, this.select.y.value];
    const said = new URLSearchParams(this.setup());
    for (const which of ["x", "y"]) {
      said.set(which, this.select[which].value);
      said.set(`${which}_values`, this.values[which].value.trim());
    }
    this.error.replaceChildren();
    this.found = null;
    this.shown.replaceChildren(h("p", { class: "muted", role: "status" }, "computing …"));
    this.button.disabled = true;
    const asked = this.of([x, y]);
    try {
      this.found = { ...await get("sweep", said.toString()), axes: [x, y], asked };
      this.draw();
    } catch (err) {
      this.shown.replaceChildren();
      if (!(err instanceof Wrong)) throw err;
      this.error.replaceChildren(h("ul", { class: "problems" },
        err.problems.map((p) => h("li", {}, p.message))));
    } finally {
      this.button.disabled = false;
    }
  }

  /** Say so where the map is of an earlier set-up, and mark the cell of the present one. */
  moved() {
    if (!this.found) return;
    const old = this.found.asked !== this.of(this.found.axes);
    this.shown.classList.toggle("old", old);
    this.note.textContent = old ? "This map is of an earlier set-up: sweep again." : this.said;
    const now = this.setup();
    for (const [button, cell] of this.cells) {
      const here = this.found.axes.every((n) =>
        n === "nodes" ? cell.set_up.gpus === now.gpus : cell.set_up[n] === now[n]);
      button.setAttribute("aria-current", String(here && !old));
    }
  }

  /** The map as it is drawn: on a narrow screen the axis with more values goes down. */
  turned() {
    const { x, y, cells, axes } = this.found;
    if (this.shown.clientWidth > NARROW || x.length <= y.length) return this.found;
    return { ...this.found, x: y, y: x, axes: [axes[1], axes[0]],
      cells: cells.map((c) => ({ ...c, x: c.y, y: c.x })) };
  }

  draw() {
    const { x, y, cells, unit, left_out: left, axes } = this.turned();
    const by = this.colour.value;
    const values = cells.filter((c) => c.fits).map((c) => c[by]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const level = (value) => (high > low ? Math.round((LEVELS * (value - low)) / (high - low)) : LEVELS);
    const name = (axis) => this.controls.find((c) => c.name === axis).label;
    this.cells = new Map();
    const button = (cell, across, down) => {
      const said = `${name(axes[0])} ${across}, ${name(axes[1])} ${down}: ${cell.rate} ${unit}, ` +
        `${cell.memory}, step ${cell.step}${cell.fits ? "" : ", does not fit"}${cell.best ? ", best" : ""}`;
      const found = h("button", { type: "button", "aria-label": said, title: said,
        class: cell.fits ? `cell heat-${level(cell[by])}` : "cell nofit",
        onclick: () => this.open(cell.set_up) },
      h("span", {}, cell.best ? "★ " : cell.fits ? "" : "✗ ", cell.rate), h("small", {}, cell.memory));
      this.cells.set(found, cell);
      return found;
    };
    const rows = y.map((down, j) => h("tr", {}, h("th", { scope: "row" }, down),
      x.map((across, i) => {
        const cell = cells.find((c) => c.x === i && c.y === j);
        return h("td", {}, cell ? button(cell, across, down)
          : h("span", { class: "cell none", title: "impossible" }, "-"));
      })));
    const fit = cells.filter((c) => c.fits).length;
    this.said = `${x.length * y.length} pairs, ${cells.length} possible, ${fit} fit`;
    this.note = h("p", { role: "status", class: "note" });
    this.shown.replaceChildren(this.note,
      h("table", { class: "map" },
        h("caption", {}, `${name(axes[1])} (down) and ${name(axes[0])} (across): ${unit} and memory a GPU`),
        h("thead", {}, h("tr", {}, h("td", {}), x.map((v) => h("th", { scope: "col" }, v)))),
        h("tbody", {}, rows)),
      h("p", { class: "muted" }, `Stronger colour: more ${COLOURS[by]}. ★ trains the most of those that fit, ` +
        "✗ and stripes: does not fit, -: impossible. A cell opens as the set-up."),
      left.length ? h("ul", { class: "muted" }, left.map((text) => h("li", {}, text))) : "");
    this.moved();
  }
}
