// The form: one table of controls, built once, filled from the set-up that is being edited.

import { h } from "./dom.js";
import { parts } from "./state.js";

const NODES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
const BATCHES = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256];

// kind: select (choices of the server), number, text (with suggestions), file
const GROUPS = [
  ["Job", [
    { name: "model", label: "Model", kind: "select", needed: true },
    { name: "model_file", label: "or your own config.json", kind: "file", of: "model",
      accept: ".json" },
    { name: "micro_batch", label: "Micro-batch, samples a GPU", kind: "slider", steps: BATCHES },
    { name: "grad_accum", label: "Micro-batches a step", kind: "number" },
  ]],
  ["Cluster", [
    { name: "nodes", label: "Nodes", kind: "slider", steps: NODES, part: true },
    { name: "gpu", label: "GPU", kind: "select", needed: true, part: true, wide: true },
    { name: "perNode", label: "GPUs a node", kind: "number", part: true },
    { name: "network", label: "Network between nodes", kind: "text", hint: "(default)" },
    { name: "gpus", label: "", kind: "error" },
  ]],
  ["Strategy", [
    { name: "strategy", label: "Strategy", kind: "select" },
    { name: "precision", label: "Precision", kind: "select" },
    { name: "recompute", label: "Recompute", kind: "select" },
    { name: "optimizer", label: "Optimizer", kind: "select" },
    { name: "offload", label: "Offload", kind: "select" },
  ]],
  ["Layout: tensor, pipeline, context, expert", [
    { name: "tp", label: "Tensor parallel", kind: "number" },
    { name: "sequence_parallel", label: "Tensor ranks cut norms too", kind: "select" },
    { name: "pp", label: "Pipeline stages", kind: "number" },
    { name: "vpp", label: "Chunks a pipeline rank", kind: "number" },
    { name: "stages", label: "Layers of each stage", kind: "text", hint: "auto" },
    { name: "cp", label: "Context parallel", kind: "number" },
    { name: "cp_comm", label: "Exchange of context ranks", kind: "select" },
    { name: "ep", label: "Expert parallel", kind: "number" },
    { name: "expert_tp", label: "Tensor ranks of an expert", kind: "number" },
    { name: "schedule", label: "Pipeline's schedule", kind: "select" },
    { name: "dispatcher", label: "Dispatch of tokens", kind: "select" },
    { name: "expert_imbalance", label: "Fullest expert rank, x the mean", kind: "number",
      step: "any" },
    { name: "expert_capacity", label: "Expert capacity, x the mean", kind: "number", step: "any" },
    { name: "expert_padding", label: "Empty slots are computed", kind: "select" },
    { name: "shard_ranks", label: "ZeRO shards over, ranks", kind: "number" },
    { name: "overlap", label: "Hidden under compute", kind: "text", hint: "grads,tensor" },
    { name: "recompute_modules", label: "Recomputed, of selective", kind: "text",
      hint: "core_attn,mlp" },
    { name: "recompute_layers", label: "Recomputed layers", kind: "number" },
  ], "closed"],
  ["More", [
    { name: "gpus_text", label: "Cluster as text, for mixed ones", kind: "text",
      hint: "1x2xA100+1x3xT4", wide: true },
    { name: "shares", label: "Samples of each kind of GPU", kind: "text", hint: "auto" },
    { name: "node", label: "Node", kind: "select", wide: true },
    { name: "global_batch", label: "Global batch, samples a step", kind: "number" },
    { name: "settings", label: "Settings of the model", kind: "text", hint: "layers=16",
      wide: true },
    { name: "seq_len", label: "Sequence length", kind: "number" },
    { name: "resolution", label: "Resolution of images", kind: "text", hint: "480x832" },
    { name: "frames", label: "Frames of a clip", kind: "number" },
    { name: "main_grads", label: "Main gradients", kind: "select" },
    { name: "software", label: "Library", kind: "select" },
    { name: "growing_segments", label: "Allocator's segments grow", kind: "select" },
    { name: "fp8_params", label: "Weights in 8 bits", kind: "select" },
    { name: "offload_layers", label: "Layers whose activations go to the host", kind: "number" },
    { name: "issuer", label: "Issued by", kind: "select" },
    { name: "compile", label: "torch.compile", kind: "select" },
    { name: "optimizer_impl", label: "Kernels of the update", kind: "select" },
    { name: "grad_clip", label: "Gradients clipped", kind: "select" },
    { name: "launch_blocking", label: "Launches wait for kernels", kind: "select" },
    { name: "attention", label: "Attention kernel", kind: "select" },
    { name: "nccl_algo", label: "NCCL's algorithms", kind: "text", hint: "Ring,Tree" },
    { name: "nccl_proto", label: "NCCL's protocols", kind: "text", hint: "Simple" },
    { name: "lora_rank", label: "LoRA rank", kind: "number" },
    { name: "lora_targets", label: "LoRA targets", kind: "text", hint: "q_proj,v_proj" },
    { name: "quantised_base", label: "Quantised base", kind: "select" },
    { name: "steps", label: "Steps of the run", kind: "number" },
    { name: "epochs", label: "Epochs of the run", kind: "number" },
    { name: "calibration", label: "Calibration", kind: "select" },
    { name: "calibration_file", label: "or your own .yaml", kind: "file", of: "calibration",
      accept: ".yaml,.yml" },
  ], "closed"],
];

// Where nothing is said and no answer tells what was taken.
const PLAIN = { dispatcher: "alltoall", cp_comm: "ring", schedule: "1f1b", offload: "none", main_grads: "as the library has it",
  quantised_base: "none", attention: "as the model runs", issuer: "as the library does", launch_blocking: "off", compile: "off",
  optimizer_impl: "as the model's loop", grad_clip: "as the model's loop",
  expert_padding: "on", sequence_parallel: "on",
  software: "as usual for the layout", growing_segments: "as the library has it", fp8_params: "off",
  calibration: "blind", node: "as usual for the GPU" };

/** The form of one set-up. `changed(setup)` is called on every move, `sent(kind, file)` on files. */
export class Controls {
  constructor(root, choices, changed, sent) {
    this.choices = choices;
    this.changed = changed;
    this.sent = sent;
    this.inputs = {};
    this.errors = {};
    this.sliders = {};
    for (const [title, items, closed] of GROUPS) {
      const body = h("div", { class: "fields" }, items.map((item) => this.control(item)));
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
      if (!item.needed) input.append(h("option", { value: "" }, `${PLAIN[item.name] ?? ""} (default)`));
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
      input = h("input", { ...common, type: "number", min: 1, step: item.step ?? 1,
        inputmode: item.step ? "decimal" : "numeric", oninput: move });
    }
    this.inputs[item.name] = input;
    if (item.kind === "slider") extra.unshift(this.slider(item, input));
    if (item.name === "micro_batch") extra.push(this.most(move));
    const wide = item.kind === "slider" || item.kind === "file" || item.wide;
    return h("div", { class: `field of-${item.kind}${wide || item.name === "model" ? " wide" : ""}` },
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

  /** What an input says; a number that is none is sent as it is not, for the server to refuse. */
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

  /** Bring every control but `except` in line with the set-up. */
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

  /** Put a slider where a number is, or nearest to it. */
  slide(name, value) {
    const { range, steps } = this.sliders[name];
    const number = Number(value);
    if (!value || !Number.isFinite(number)) return;
    const near = steps.reduce((best, step, i) =>
      Math.abs(step - number) < Math.abs(steps[best] - number) ? i : best, 0);
    range.value = near;
    range.setAttribute("aria-valuetext", value);
  }

  /** Say next to each control what its default is, as the answer has it. */
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

  /** Put each problem next to its control; answers those that have none. */
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

  /** Offer an uploaded file, and choose it. */
  offer(kind, name, shown) {
    const input = this.inputs[kind];
    if (![...input.options].some((o) => o.value === name)) {
      input.append(h("option", { value: name }, `${shown} (uploaded)`));
    }
    input.value = name;
    this.moved({ name: kind, kind: "select" });
  }
}
