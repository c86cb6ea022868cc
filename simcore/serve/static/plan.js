// The plan: which GPUs for a run, until when, at what cost. Every option opens as a set-up.

import { h, s, table } from "./dom.js";
import { Wrong, get } from "./server.js";
import { parts } from "./state.js";

const FIELDS = [
  { name: "gpus", label: "GPU types", hint: "H100,A100" },
  { name: "tokens", label: "Tokens of the run", hint: "300B" },
  { name: "epochs", label: "or epochs", number: true },
  { name: "deadline", label: "Deadline", hint: "30d or 2027-03-01" },
  { name: "budget", label: "Budget ($)", number: true, hint: "200000" },
  { name: "max_gpus", label: "At most GPUs", number: true, hint: "512" },
];
const OBJECTIVES = { cost: "lowest cost", time: "shortest time", energy: "least energy",
  gpus: "fewest GPUs" };

/** The plan's panel. `setup()`: the set-up that is edited; `open(setup)`: shows another one. */
export class Planner {
  constructor(root, setup, open) {
    Object.assign(this, { setup, open });
    this.inputs = Object.fromEntries(FIELDS.map((f) => [f.name, h("input", { id: `plan-${f.name}`,
      name: f.name, type: f.number ? "number" : "text", step: f.number ? "any" : null,
      min: f.number ? 0 : null, maxlength: 100, placeholder: f.hint ?? "", spellcheck: "false" })]));
    this.objective = h("select", { id: "plan-objective" }, Object.entries(OBJECTIVES).map(
      ([value, text]) => h("option", { value }, text)));
    const field = (name, label, input) => h("div", { class: "field" },
      h("label", { for: `plan-${name}` }, label), input);
    this.button = h("button", { type: "submit" }, "Plan");
    this.error = h("div", { role: "alert" });
    this.found = h("div", { id: "plan-found", "aria-live": "polite" });
    const form = h("form", { class: "fields plan", autocomplete: "off", novalidate: true,
      "aria-label": "Plan", onsubmit: (event) => { event.preventDefault(); this.ask(); } },
    FIELDS.map((f) => field(f.name, f.label, this.inputs[f.name])),
    field("objective", "First by", this.objective), h("div", { class: "field bare" }, this.button));
    root.append(form, this.error, this.found);
  }

  async ask() {
    const { model, seq_len: length } = this.setup();
    const said = { model, objective: this.objective.value };
    if (length) said.seq_len = length;
    for (const [name, input] of Object.entries(this.inputs)) {
      const value = input.validity.badInput ? "?" : input.value.trim();
      if (value) said[name] = value;
    }
    said.gpus ??= parts(this.setup().gpus)?.gpu ?? "";
    this.error.replaceChildren();
    this.asked = null;
    this.found.replaceChildren(h("p", { class: "muted" }, `computing a plan for ${model} …`));
    this.button.disabled = true;
    const asked = this.of();
    try {
      this.show(await get("plan", new URLSearchParams(said).toString()));
      this.asked = asked;
      this.moved();
    } catch (err) {
      if (!(err instanceof Wrong)) throw err;
      this.found.replaceChildren();
      this.error.replaceChildren(h("ul", { class: "problems" },
        err.problems.map((p) => h("li", {}, p.message))));
    } finally {
      this.button.disabled = false;
    }
  }

  /** What the plan is of. */
  of() {
    const { model, seq_len: length } = this.setup();
    return `${model} ${length ?? ""}`;
  }

  /** Say so where the plan is of another model. */
  moved() {
    if (!this.asked) return;
    const old = this.asked !== this.of();
    this.found.classList.toggle("old", old);
    this.note.textContent = old ? "This plan is of an earlier set-up: plan again." : "";
  }

  show({ best, front, feasible, text }) {
    const rows = best.map((way) => [h("button", { type: "button", class: "link",
      onclick: () => this.open(way.set_up) }, way.cluster), way.time, way.cost, way.odds || "-",
    way.how, way.step, way.memory, way.why]);
    this.note = h("p", { role: "status", class: "note" });
    this.found.replaceChildren(this.note,
      feasible
        ? table("Options", ["cluster", "time", "cost", "in limits", "how", "step", "memory", "why"], rows)
        : h("p", { class: "verdict no" }, h("strong", {}, "✗ no option meets all limits")),
      front.length > 1 ? this.chart(front) : "",
      h("details", { open: !feasible }, h("summary", {}, "as on the command line"),
        h("pre", { tabindex: 0, role: "region", "aria-label": "The plan on the command line" }, text)));
  }

  /** The Pareto front of time and cost, or of time and GPUs where no prices are known. */
  chart(front) {
    const priced = front.every((way) => way.cost_usd !== null);
    const worth = (way) => (priced ? way.cost_usd : way.gpus);
    const [width, height, edge, top] = [Math.min(this.found.clientWidth || 600, 860), 240, 64, 16];
    const scale = (values, from, to) => {
      const [low, high] = [Math.log(Math.min(...values)), Math.log(Math.max(...values))];
      return (v) => (high === low ? (from + to) / 2
        : from + ((Math.log(v) - low) / (high - low)) * (to - from));
    };
    const x = scale(front.map((w) => w.time_s), edge, width - 32);
    const y = scale(front.map(worth), height - 48, top);
    const points = front.map((way) => {
      const said = `${way.cluster}, ${way.how}: ${way.time}, ${way.cost}`;
      return s("a", { href: "#headline", class: "pick", "aria-label": said, onclick: (event) => {
        event.preventDefault();
        this.open(way.set_up);
      } },
      s("circle", { cx: x(way.time_s), cy: y(worth(way)), r: 6, class: "point series-0" }),
      s("title", {}, said));
    });
    const ends = [front[0], front[front.length - 1]];
    const labels = ends.flatMap((way, i) => [
      s("text", { x: x(way.time_s), y: height - 26, class: "tick",
        "text-anchor": i === (ends[0].time_s < ends[1].time_s ? 0 : 1) ? "start" : "end" }, way.time),
      s("text", { x: edge - 10, y: y(worth(way)) + 4, "text-anchor": "end", class: "tick" },
        priced ? way.cost : `${way.gpus} GPUs`)]);
    return h("figure", {}, s("svg", { class: "scaling", width, height },
      s("text", { x: width / 2, y: height - 6, "text-anchor": "middle", class: "tick" },
        `time of the run against its ${priced ? "cost" : "GPUs"}`), labels, points),
    h("figcaption", {}, "nothing is better in both than these; a point opens as a set-up"));
  }
}
