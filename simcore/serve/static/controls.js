// The form: draws each kind of control and fills it from the set-up that is being edited. The list
// of controls comes from the server (/api/v1/controls), which makes it from the option table.

import { Combobox } from "./combobox.js";
import { h } from "./dom.js";
import { get } from "./server.js";
import { parts } from "./state.js";

const HINT = "What a field means stands here, once it is entered.";
const CLUSTER = ["nodes", "perNode", "gpu"];

/** The form of one set-up. Calls `changed(setup)` on every change, `sent(kind, file)` for files. */
export class Controls {
  constructor(root, groups, choices, changed, sent) {
    Object.assign(this, { choices, changed, sent, inputs: {}, boxes: {}, sliders: {}, said: [] });
    this.items = groups.flatMap((g) => g.controls);
    this.errors = h("div", { id: "problems" });
    this.meaning = h("p", { id: "meaning" }, HINT);
    const drawn = groups.map((g) => [g, h("fieldset", { class: "group" }, h("legend", {}, g.title),
      h("div", { class: "fields" }, g.controls.map((item) => this.control(item))))]);
    const of = (others) => drawn.filter(([g]) => g.closed === others).map(([, field]) => field);
    this.count = h("span", { class: "muted" });
    this.none = h("p", { class: "muted", role: "status" });
    this.others = h("details", { class: "group", id: "others" },
      h("summary", {}, "All other options ", this.count),
      h("input", { type: "search", id: "find-option", "aria-label": "Search the options",
        placeholder: "search: offload, nccl, expert", oninput: (e) => this.find(e.target.value) }),
      this.none, of(true));
    root.append(...of(false), this.others, h("div", { id: "help" }, this.errors, this.meaning));
    for (const event of ["focusin", "pointerover"]) {
      root.addEventListener(event, ({ target }) => this.explain(target.closest(".field")));
    }
  }

  control(item) {
    if (item.kind === "error") return "";
    const { name } = item;
    const id = `in-${name}`;
    const meaning = h("span", { id: `${name}-meaning`, hidden: true }, item.help);
    const common = { id, name, "aria-describedby":
      `${meaning.id} ${item.part ? "gpus" : name}-error` };
    const move = () => this.moved(item);
    const number = () => h("input", { ...common, type: "number", min: item.least,
      step: item.fine ? "any" : 1, inputmode: item.fine ? "decimal" : "numeric", oninput: move });
    const kinds = {
      select: () => h("select", { ...common, onchange: move },
        item.needed ? "" : h("option", { value: "" }, `${item.unsaid} (default)`),
        (Object.keys(item.sets).length ? Object.keys(item.sets) : this.choices[name] ?? []).map(
          (value) => h("option", { value }, value))),
      name: () => this.named(item, common, move),
      file: () => h("input", { ...common, type: "file", accept: item.accept, onchange: move }),
      text: () => h("input", { ...common, type: "text", maxlength: 200, placeholder: item.hint,
        spellcheck: "false", list: this.choices[name] ? `${id}-list` : null, oninput: move }),
      number, slider: number,
    };
    const shown = kinds[item.kind]();
    this.inputs[name] = this.boxes[name]?.input ?? shown;
    const extra = [];
    if (item.kind === "slider") extra.push(this.slider(item, shown));
    if (item.most) extra.push(this.most(move));
    if (item.kind === "text" && this.choices[name]) {
      extra.push(h("datalist", { id: `${id}-list` },
        this.choices[name].map((value) => h("option", { value }))));
    }
    return h("div", { class: `field of-${item.kind}${item.wide ? " wide" : ""}`, "data-name": name },
      h("label", { for: id }, item.label), shown, ...extra, meaning);
  }

  named(item, common, move) {
    const search = (text) => get("names", new URLSearchParams({ kind: item.name, text }).toString());
    this.boxes[item.name] = new Combobox(common, search, move);
    return this.boxes[item.name].root;
  }

  slider(item, input) {
    const range = h("input", {
      type: "range", min: 0, value: 0, max: item.steps.length - 1, step: 1, "aria-label":
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
  value(name) {
    const input = this.inputs[name];
    return input.validity?.badInput ? "?" : input.value.trim();
  }

  moved(item) {
    const started = performance.now();
    const { name } = item;
    if (item.kind === "file") {
      const [file] = this.inputs[name].files;
      if (file) this.sent(item.of, file);
      return;
    }
    const setup = { ...this.setup };
    const set = (key, value) => {
      if (value === "") delete setup[key];
      else setup[key] = value;
    };
    if (item.part) {
      set("gpus", [this.value("nodes") || "1", this.value("perNode") || "1",
        this.value("gpu")].join("x"));
    } else if (name === "gpus_text") {
      set("gpus", this.value(name) || this.setup.gpus);
    } else if (name === "micro_batch") {
      set(name, this.max.checked ? "max" : this.value(name));
    } else if (item.sets?.[this.value(name)]) {
      for (const [key, value] of Object.entries(item.sets[this.value(name)])) {
        set(key, value && (setup[key] ?? value));
      }
    } else {
      set(name, this.value(name));
    }
    this.setup = setup;
    this.last = name;
    this.settle(item.kind === "name" ? null : name);
    this.changed(setup, started);
  }

  /** Show another set-up. */
  show(setup) {
    this.setup = { ...setup };
    this.settle(null);
  }

  /** Set every control except `except` to the value in the set-up. */
  settle(except) {
    const { setup } = this;
    const put = (name, value) => {
      const input = this.inputs[name];
      if (name === except || input.type === "file") return;
      if (this.boxes[name]) this.boxes[name].value = value;
      if (input.tagName === "SELECT" && value && ![...input.options].some((o) => o.value === value)) {
        input.append(h("option", { value }, value));
      }
      if (input.value !== value) input.value = value;
    };
    for (const { name, sets } of this.items.filter((i) => i.kind !== "error")) {
      const fits = Object.entries(sets).filter(([, all]) =>
        Object.entries(all).every(([k, v]) => !v || (setup[k] ?? "none") !== "none"));
      put(name, fits.length ? fits[fits.length - 1][0] : setup[name] ?? "");
    }
    const found = parts(setup.gpus);
    for (const name of CLUSTER) {
      this.inputs[name].disabled = !found;
      if (found) put(name, found[name]);
    }
    this.sliders.nodes.range.disabled = !found;
    this.inputs.gpu.placeholder = found ? "" : "mixed: see Cluster as text";
    put("gpus_text", setup.gpus);
    this.max.checked = setup.micro_batch === "max";
    this.inputs.micro_batch.disabled = this.max.checked;
    if (this.max.checked) put("micro_batch", "");
    for (const name of Object.keys(this.sliders)) this.slide(name, this.value(name));
    const set = Object.keys(setup).filter((k) => this.inputs[k]?.closest("#others")).length;
    this.count.textContent = set ? `(${set} set)` : "";
  }

  /** Move a slider to the position nearest to a number. */
  slide(name, value) {
    const { range, steps } = this.sliders[name];
    const number = Number(value);
    if (!value || !Number.isFinite(number)) return;
    range.value = steps.reduce((best, step, i) =>
      Math.abs(step - number) < Math.abs(steps[best] - number) ? i : best, 0);
    range.setAttribute("aria-valuetext", value);
  }

  /** Show in each empty control the default that the answer states. */
  defaults(answer) {
    for (const text of answer.defaults) {
      const at = text.indexOf(" ");
      const input = this.inputs[text.slice(0, at).replaceAll("-", "_")];
      const shown = `${text.slice(at + 1)} (default)`;
      if (input?.tagName === "SELECT") input.options[0].textContent = shown;
      else if (input) input.placeholder = shown;
    }
    if (!this.value("micro_batch") || this.max.checked) {
      this.slide("micro_batch", String(answer.micro_batch));
    }
  }

  /** Say what a field means. */
  explain(field) {
    const item = this.items.find((i) => i.name === field?.dataset.name);
    if (item) this.meaning.replaceChildren(h("strong", {}, item.label), `: ${item.help}`);
  }

  /** Say each problem below the form, where no field moves, and mark its control. */
  problems(found) {
    const wrong = {};
    for (const { field: about, message } of found) {
      const field = about === "gpus" && this.last === "gpus_text" ? "gpus_text" : about;
      if (field === "gpus" || this.inputs[field]) (wrong[field] ??= []).push(message);
    }
    this.errors.replaceChildren(...Object.entries(wrong).map(([name, messages]) =>
      h("p", { class: "error", id: `${name}-error` }, messages.join("; "))));
    for (const [name, input] of Object.entries(this.inputs)) {
      const bad = name in wrong || ("gpus" in wrong && this.cluster().includes(name));
      input.setAttribute("aria-invalid", String(bad));
      if (bad && input.closest("#others")) this.others.open = true;
    }
  }

  /** The controls that set the cluster: its parts, or the whole of a mixed one as text. */
  cluster() {
    return this.inputs.gpu.disabled ? ["gpus_text"] : ["gpu", "nodes", "perNode"];
  }

  /** Focus the control of a parameter. */
  go(field) {
    const input = this.inputs[field === "gpus" ? this.cluster()[0] : field];
    if (input?.closest("#others")) this.others.open = true;
    input?.focus();
  }

  /** Show those of the other options whose words are those of the text. */
  find(text) {
    const words = text.toLowerCase().split(/\s+/);
    let any = false;
    for (const group of this.others.querySelectorAll("fieldset")) {
      const fields = [...group.querySelectorAll(".field")];
      for (const field of fields) {
        const has = `${group.firstChild.textContent} ${field.textContent} ${field.dataset.name}`;
        field.hidden = !words.every((word) => has.toLowerCase().includes(word));
      }
      group.hidden = fields.every((field) => field.hidden);
      any ||= !group.hidden;
    }
    this.none.textContent = any ? "" : "no option has these words";
  }

  /** Add an uploaded file to the choices, and select it. */
  offer(kind, name, shown) {
    const input = this.inputs[kind];
    if (input.tagName === "SELECT" && ![...input.options].some((o) => o.value === name)) {
      input.append(h("option", { value: name }, `${shown} (uploaded)`));
    }
    input.value = name;
    this.moved(this.items.find((i) => i.name === kind));
  }
}
