// The three views of the results as tabs: the arrow keys move between them.

/** Make the tabs of a list show their panels; `shown(name)` is called after one is shown. */
export function views(list, shown) {
  const tabs = [...list.querySelectorAll("[role=tab]")];
  const show = (tab, focus = true) => {
    for (const other of tabs) {
      const on = other === tab;
      other.setAttribute("aria-selected", String(on));
      other.tabIndex = on ? 0 : -1;
      document.getElementById(other.getAttribute("aria-controls")).hidden = !on;
    }
    if (focus) tab.focus();
    shown(tab.getAttribute("aria-controls"));
  };
  list.addEventListener("click", ({ target }) => tabs.includes(target) && show(target));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) show(tabs[(tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length]);
  });
  return (name, focus = false) =>
    show(tabs.find((t) => t.getAttribute("aria-controls") === name) ?? tabs[0], focus);
}
