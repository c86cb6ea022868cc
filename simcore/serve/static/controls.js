// The form: draws each kind of control and fills it from the set-up that is being edited. The list
// of controls comes from the server (/api/v1/controls), which makes it from the option table.

import { h } from "./dom.js";
import { parts } from "./state.js";

/** The form of one set-up. Calls `changed(setup)` on every change, `sent(kind, file)` for files. */
export class Controls {
  constructor(root, groups, choices, changed, sent) {
    this.choices = choices;
    this.changed = changed;
    this.sent = sent;
    this.inputs = {};
    this.errors = {};
    this.sliders = {};
    for (const { title, closed, controls } of groups) {
      const body = h("div", { class: "fields" }, controls.map((item) => this.control(item)));
      root.append(
        closed
          ? h("details", { class: "group" }, h("summary", {}, title), body)
          : h("fieldset", { class: "group" }, h("legend", {}, title), body),
      );
    }
  }

  control(item) {
    const error = h("p", { class: "error", id: `${item.name}-error`, hidden: true });
    this.errors[item.name] = error;
    if (item.kind === "error") return h("div", { class: "field wide bare" }, error);
    const id = `in-${item.name}`;
    const described = item.part ? "gpus-error" : error.id;
    const common = { id, name: item.name, "aria-describedby": described };
    const move = () => this.moved(item);
    let input;
    const extra = [];
    if (item.kind === "select") {
      input = h("select", { ...common, onchange: move });
      if (!item.needed) input.append(h("option", { value: "" }, `${item.unsaid} (default)`));
      for (const name of this.choices[item.name] ?? []) {
        input.append(h("option", { value: name }, name));
      }
    } else if (item.kind === "file") {
      input = h("input", { ...common, type: "file", accept: item.accept, onchange: move });
    } else if (item.kind === "text") {
      input = h("input", { ...common, type: "text", maxlength: 200, placeholder: item.hint,
        spellcheck: "false", list: this.choices[item.name] ? `${id}-list` : null,
        oninput: move });
      if (this.choices[item.name]) {
        extra.push(h("datalist", { id: `${id}-list` },
          this.choices[item.name].map((name) => h("option", { value: name }))));
      }
    } else {
      input = h("input", { ...common, type: "number", min: item.least,
        step: item.fine ? "any" : 1, inputmode: item.fine ? "decimal" : "numeric",
        oninput: move });
    }
    this.inputs[item.name] = input;
    if (item.kind === "slider") extra.unshift(this.slider(item, input));
    if (item.most) extra.push(this.most(move));
    return h("div", { class: `field of-${item.kind}${item.wide ? " wide" : ""}` },
      h("label", { for: id }, item.label), input, ...extra, error);
  }

  slider(item, input) {
    const range = h("input", {
      type: "range", min: 0, max: item.steps.length - 1, step: 1, "aria-label":
      `${item.label}, slider`, oninput: () => {
        input.value = item.steps[range.value];
        range.setAttribute("aria-valuetext", input.value);
        if (this.max) this.max.checked = this.max.checked && item.name !== "micro_batch";
        this.moved(item);
      },
    });
    this.sliders[item.name] = { range, steps: item.steps };
    return range;
  }

  most(move) {
    this.max = h("input", { type: "checkbox", id: "in-max", onchange: move });
    return h("span", { class: "check" }, this.max, h("label", { for: "in-max" }, "most that fits"));
  }

  /** The value of an input; for an invalid number "?", which the server refuses with a message. */
  said(name) {
    const input = this.inputs[name];
    return input.validity?.badInput ? "?" : input.value.trim();
  }

  moved(item) {
    const started = performance.now();
    if (item.kind === "file") {
      const [file] = this.inputs[item.name].files;
      if (file) this.sent(item.of, file);
      return;
    }
    const setup = { ...this.setup };
    const set = (key, value) => {
      if (value === "") delete setup[key];
      else setup[key] = value;
    };
    if (item.part) {
      set("gpus", [this.said("nodes") || "1", this.said("perNode") || "1",
        this.inputs.gpu.value].join("x"));
    } else if (item.name === "gpus_text") {
      set("gpus", this.said("gpus_text") || this.setup.gpus);
    } else if (item.name === "micro_batch") {
      set("micro_batch", this.max.checked ? "max" : this.said("micro_batch"));
      this.inputs.micro_batch.disabled = this.max.checked;
    } else {
      set(item.name, this.said(item.name));
    }
    this.setup = setup;
    this.last = item.name;
    this.settle(item.name);
    this.changed(setup, started);
  }

  /** Show another set-up. */
  show(setup) {
    this.setup = { ...setup };
    this.settle(null);
  }

  /** Set every control except `except` to the value in the set-up. */
  settle(except) {
    const setup = this.setup;
    const put = (name, value) => {
      const input = this.inputs[name];
      if (name === except || input.type === "file") return;
      if (input.tagName === "SELECT" && value && ![...input.options].some((o) => o.value === value)) {
        input.append(h("option", { value }, value));
      }
      if (input.value !== value) input.value = value;
    };
    for (const name of Object.keys(this.inputs)) put(name, setup[name] ?? "");
    const found = parts(setup.gpus);
    for (const name of ["nodes", "perNode", "gpu"]) {
      this.inputs[name].disabled = !found;
      if (found) put(name, found[name]);
    }
    this.sliders.nodes.range.disabled = !found;
    put("gpus_text", setup.gpus);
    this.max.checked = setup.micro_batch === "max";
    this.inputs.micro_batch.disabled = this.max.checked;
    if (this.max.checked) put("micro_batch", "");
    for (const name of Object.keys(this.sliders)) this.slide(name, this.said(name));
  }

  /** Move a slider to the position nearest to a number. */
  slide(name, value) {
    const { range, steps } = this.sliders[name];
    const number = Number(value);
    if (!value || !Number.isFinite(number)) return;
    const near = steps.reduce((best, step, i) =>
      Math.abs(step - number) < Math.abs(steps[best] - number) ? i : best, 0);
    range.value = near;
    range.setAttribute("aria-valuetext", value);
  }

  /** Show in each empty control the default that the answer states. */
  defaults(answer) {
    for (const text of answer.defaults) {
      const at = text.indexOf(" ");
      const name = text.slice(0, at).replaceAll("-", "_");
      const input = this.inputs[name];
      if (input?.tagName === "SELECT") input.options[0].textContent = `${text.slice(at + 1)} (default)`;
      else if (input) input.placeholder = `${text.slice(at + 1)} (default)`;
    }
    if (!this.said("micro_batch") || this.max.checked) {
      this.slide("micro_batch", String(answer.micro_batch));
    }
  }

  /** Show each problem at its control; returns the problems that belong to no control. */
  problems(found) {
    const left = [];
    const said = {};
    for (const { field: about, message } of found) {
      const field = about === "gpus" && this.last === "gpus_text" ? "gpus_text" : about;
      if (field in this.errors) (said[field] ??= []).push(message);
      else left.push(message);
    }
    for (const [name, error] of Object.entries(this.errors)) {
      const text = (said[name] ?? []).join("; ");
      if (error.textContent !== text) error.textContent = text;
      error.hidden = !text;
      const inputs = name === "gpus" ? ["nodes", "perNode", "gpu"] : [name];
      for (const input of inputs) {
        this.inputs[input]?.setAttribute("aria-invalid", text ? "true" : "false");
      }
      if (text) error.closest("details")?.setAttribute("open", "");
    }
    return left;
  }

  /** Add an uploaded file to the choices, and select it. */
  offer(kind, name, shown) {
    const input = this.inputs[kind];
    if (![...input.options].some((o) => o.value === name)) {
      input.append(h("option", { value: name }, `${shown} (uploaded)`));
    }
    input.value = name;
    this.moved({ name: kind, kind: "select" });
  }
}
