// Requests to the API. Every failure becomes a list of {field, message}.

const WAIT_MS = 1000;
const GONE = "the server does not answer: is simcore serve still running?";

/** An error response of the server. */
export class Wrong extends Error {
  constructor(problems) {
    super(problems.map((p) => p.message).join("; "));
    this.problems = problems;
  }
}

async function send(path, options) {
  for (;;) {
    let response;
    try {
      response = await fetch(path, options);
    } catch {
      throw new Wrong([{ field: "", message: GONE }]);
    }
    if (response.ok) return response;
    if (response.status === 429) {
      await new Promise((done) => setTimeout(done, WAIT_MS));
      continue;
    }
    let problems;
    try {
      ({ problems } = await response.json());
    } catch {
      problems = null;
    }
    throw new Wrong(problems ?? [{ field: "", message: `the server answered ${response.status}` }]);
  }
}

/** The JSON of an endpoint. */
export const get = async (name, query = "") =>
  (await send(`/api/v1/${name}${query && `?${query}`}`)).json();

/** Upload a file; returns {name, kind, shown}. */
export const upload = async (kind, file) =>
  (await send(`/api/v1/uploads?kind=${kind}`, { method: "POST", body: file })).json();

/** Save an endpoint's response as a file; returns the options that the file leaves out. */
export async function download(name, query) {
  const response = await send(`/api/v1/${name}?${query}`);
  const blob = await response.blob();
  const stated = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = stated?.[1] ?? `simcore-${name}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), WAIT_MS * 10);
  return response.headers.get("simcore-not-in-file") ?? "";
}
