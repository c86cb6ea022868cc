// Converts set-ups to the query of the page's link and back. The parameters are those of the API;
// those of the second to fourth set-up have the prefixes "b.", "c." and "d.".

export const LETTERS = ["A", "B", "C", "D"];
export const OPENING = { model: "latte-xl", gpus: "4x8xA6000ada" };
const SIMPLE = /^\s*(?:(\d+)\s*[x×*]\s*)?(?:(\d+)\s*[x×*]\s*)?([^x×*+\s][^x×*+]*?)\s*$/;

/** The set-ups in a query string; for an empty one, the set-up that the page opens with. */
export function fromQuery(text) {
  const found = [];
  for (const [key, value] of new URLSearchParams(text)) {
    const match = /^(?:([bcd])\.)?([a-z_]+)$/.exec(key);
    if (!match || value === "") continue;
    const index = match[1] ? "abcd".indexOf(match[1]) : 0;
    (found[index] ??= {})[match[2]] = value;
  }
  const setups = Array.from(found, (setup) => ({ ...(setup ?? found[0] ?? OPENING) }));
  if (!setups.length) setups.push({});
  return setups.map((setup) => ({ ...OPENING, ...setup }));
}

/** The query of one set-up, for the API. */
export const query = (setup) => new URLSearchParams(setup).toString();

/** The query of all set-ups, for the page's link. */
export function toQuery(setups) {
  const said = new URLSearchParams();
  setups.forEach((setup, i) => {
    for (const [key, value] of Object.entries(setup)) {
      said.append(i ? `${"abcd"[i]}.${key}` : key, value);
    }
  });
  return said.toString();
}

/** Texts of the options in which a set-up differs from the first. */
export function differences(setup, first) {
  const keys = [...new Set([...Object.keys(first), ...Object.keys(setup)])];
  return keys
    .filter((key) => setup[key] !== first[key])
    .map((key) => `${key.replaceAll("_", "-")} ${setup[key] ?? "(default)"}`);
}

/** {nodes, perNode, gpu} of a cluster with one GPU type; null for a mixed one. */
export function parts(gpus) {
  const match = SIMPLE.exec(gpus ?? "");
  if (!match) return null;
  const [, first, second, gpu] = match;
  return second
    ? { nodes: first, perNode: second, gpu }
    : { nodes: "1", perNode: first ?? "1", gpu };
}
