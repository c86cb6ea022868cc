// A text field with a list of names that fit what is typed (the combobox pattern of WAI-ARIA).

import { h } from "./dom.js";

/** `search(text)`: promises [{name, about}]; `commit()`: called when the value was chosen. */
export class Combobox {
  constructor(attributes, search, commit) {
    const list = `${attributes.id}-list`;
    Object.assign(this, { search, commit, found: [], at: -1, asked: 0 });
    this.input = h("input", { ...attributes, type: "text", maxlength: 100, spellcheck: "false",
      autocapitalize: "none", role: "combobox", "aria-autocomplete": "list",
      "aria-expanded": "false", "aria-controls": list,
      oninput: () => this.look(this.input.value),
      onkeydown: (event) => this.pressed(event),
      onfocus: () => this.input.select(),
      onclick: () => this.browse(),
      onblur: () => this.done() });
    this.list = h("ul", { id: list, class: "options", role: "listbox", hidden: true,
      "aria-label": "Names that fit",
      onmousedown: (event) => event.preventDefault(), // keeps the focus in the field
      onclick: (event) => {
        const option = event.target.closest("li");
        if (option) this.pick(Number(option.dataset.at));
      } });
    this.count = h("span", { class: "hidden", role: "status" });
    this.root = h("div", { class: "combobox" }, this.input, this.list, this.count);
  }

  set value(text) {
    this.chosen = text;
    if (this.input.value !== text) this.input.value = text;
  }

  /** Show the names whose words are those of the text; of slow answers the last one counts. */
  async look(text) {
    const asked = ++this.asked;
    let found;
    try {
      found = await this.search(text);
    } catch {
      return;
    }
    if (asked !== this.asked || document.activeElement !== this.input) return;
    this.found = found;
    this.list.replaceChildren(...found.map(({ name, about }, at) => h("li", { role: "option",
      id: `${this.list.id}-${at}`, "data-at": at, "aria-selected": "false" },
    h("span", {}, name), h("span", { class: "muted" }, about))));
    this.count.textContent = `${found.length} names`;
    this.show(found.length > 0);
    this.move(-1);
  }

  /** The family of what was chosen, before anything is typed. */
  browse() {
    if (this.list.hidden) this.look(/^[a-z]*\d*/i.exec(this.chosen ?? "")[0]);
  }

  show(open) {
    this.list.hidden = !open;
    this.input.setAttribute("aria-expanded", String(open));
  }

  move(at) {
    this.at = at;
    [...this.list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    const option = this.list.children[at];
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  }

  pressed(event) {
    const [open, n] = [!this.list.hidden, this.found.length];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) this.browse();
      else this.move((this.at + (event.key === "ArrowDown" ? 1 : this.at < 0 ? 0 : -1) + n) % n);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && this.at >= 0) this.pick(this.at);
      else this.done();
    } else if (event.key === "Escape" && (open || this.input.value !== this.chosen)) {
      event.preventDefault();
      if (!open) this.input.value = this.chosen;
      this.close();
    }
  }

  pick(at) {
    this.input.value = this.found[at].name;
    this.done();
  }

  close() {
    this.asked += 1;
    this.show(false);
    this.move(-1);
  }

  /** Take what stands in the field: as typed, the server knows it as the command line does. */
  done() {
    this.close();
    const text = this.input.value.trim();
    if (!text) this.input.value = this.chosen;
    if (document.activeElement === this.input) this.input.select(); // to be typed over
    if (!text || text === this.chosen) return;
    this.chosen = text;
    this.commit();
  }
}
