// What was chosen, and the link that says it. The page's query is the API's query; the second to
// fourth set-up stand in it with "b.", "c." and "d." before each word.

export const LETTERS = ["A", "B", "C", "D"];
export const OPENING = { model: "latte-xl", gpus: "4x8xA6000ada" };
const SIMPLE = /^\s*(?:(\d+)\s*[x×*]\s*)?(?:(\d+)\s*[x×*]\s*)?([^x×*+\s][^x×*+]*?)\s*$/;

/** Set-ups from a query string; what the page opens with where it is empty. */
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

/** The query of one set-up, as the API takes it. */
export const query = (setup) => new URLSearchParams(setup).toString();

/** The query that says all set-ups. */
export function toQuery(setups) {
  const said = new URLSearchParams();
  setups.forEach((setup, i) => {
    for (const [key, value] of Object.entries(setup)) {
      said.append(i ? `${"abcd"[i]}.${key}` : key, value);
    }
  });
  return said.toString();
}

/** What a set-up says otherwise than the first, in words. */
export function differences(setup, first) {
  const keys = [...new Set([...Object.keys(first), ...Object.keys(setup)])];
  return keys
    .filter((key) => setup[key] !== first[key])
    .map((key) => `${key.replaceAll("_", "-")} ${setup[key] ?? "(default)"}`);
}

/** {nodes, perNode, gpu} of a cluster of one type; null of a mixed one. */
export function parts(gpus) {
  const match = SIMPLE.exec(gpus ?? "");
  if (!match) return null;
  const [, first, second, gpu] = match;
  return second
    ? { nodes: first, perNode: second, gpu }
    : { nodes: "1", perNode: first ?? "1", gpu };
}
