// Charts as SVG. Positions are computed here; all printed figures come from the server as text.

import { h, s, table } from "./dom.js";
import { LETTERS } from "./state.js";

// Patterns besides colours distinguish the terms in black and white and for the colour-blind.
const TERMS = ["activations", "optimizer_state", "parameters", "gradients", "ema",
  "gradient_buckets", "frozen_models", "gathered_parameters", "working_set", "autocast_weights",
  "replicas", "workspace", "allocator_rounding", "allocator_holes", "nccl_buffers", "cuda_context"];
const DASHES = ["", "7 4", "2 4", "9 3 2 3"];
const MARKS = [
  (x, y) => s("circle", { cx: x, cy: y, r: 4 }),
  (x, y) => s("rect", { x: x - 4, y: y - 4, width: 8, height: 8 }),
  (x, y) => s("path", { d: `M${x} ${y - 5}l5 9h-10z` }),
  (x, y) => s("path", { d: `M${x} ${y - 5.5}l5 5.5-5 5.5-5-5.5z` }),
];

/** The SVG patterns of memory terms, to add to the page once; smaller terms are grey. */
export function patterns() {
  const lines = ["", "M0 8L8 0M-2 2L2-2M6 10L10 6", "M2 2h1v1h-1zM6 6h1v1h-1z",
    "M0 0L8 8M-2 6L2 10M6-2L10 2", "M0 4h8", "M4 0v8", "M0 0L8 8M0 8L8 0"];
  const grey = lines.length - 1;
  return TERMS.map((term, i) => s("pattern", { id: `term-${term}`, width: 8, height: 8,
    patternUnits: "userSpaceOnUse" },
  s("rect", { width: 8, height: 8, class: `fill-${Math.min(i, grey)}` }),
  s("path", { d: lines[(i + (i > grey)) % lines.length], class: "ink" })));
}

const ofTerm = (key) => `url(#term-${TERMS.includes(key) ? key : "cuda_context"})`;

/** The small square of a term's pattern, for the table. */
export const swatch = (key) =>
  s("svg", { class: "swatch", width: 14, height: 14, "aria-hidden": "true" },
    s("rect", { x: 0.5, y: 0.5, width: 13, height: 13, fill: ofTerm(key), class: "edge" }));

/** A bar of the step time and its interval, on an axis up to `most` that all set-ups share. */
export function stepBar(step, most) {
  const x = (value) => 4 + (292 * value) / most;
  return s("svg", { class: "stepbar", viewBox: "0 0 300 22", preserveAspectRatio: "none",
    role: "img", "aria-label": `${step.text}, ${step.interval}` },
  s("line", { x1: 4, x2: 296, y1: 11, y2: 11, class: "axis" }),
  s("rect", { x: x(step.low_s), width: Math.max(x(step.high_s) - x(step.low_s), 1), y: 6,
    height: 10, class: "band" }),
  s("rect", { x: x(step.value_s) - 1.5, width: 3, y: 2, height: 18, class: "mark" }));
}

/** A bar of memory by term, with the device's limit; `most`: end of the axis of all set-ups. */
export function memoryBar(memory, most) {
  const x = (frac) => `${((100 * frac) / most).toFixed(2)}%`;
  let at = 0;
  const segments = memory.terms.map((term) => {
    const frac = term.frac * memory.device_frac;
    const found = s("rect", { x: x(at), y: 18, width: x(frac), height: 28, fill: ofTerm(term.key),
      class: "edge" }, s("title", {}, `${term.label} ${term.text}, ${term.share}`));
    at += frac;
    return found;
  });
  const vertical = (frac, y1, y2, kind) =>
    s("line", { x1: x(frac), x2: x(frac), y1, y2, class: kind });
  const late = most < 1.6;
  return s("svg", { class: "memorybar", role: "img", "aria-label":
    `memory ${memory.text} of ${memory.limit}: ${memory.terms.slice(0, 4)
      .map((t) => `${t.label} ${t.text}`).join(", ")}` },
  segments,
  s("line", { x1: x(memory.low_frac), x2: x(memory.high_frac), y1: 53, y2: 53, class: "whisker" }),
  vertical(memory.low_frac, 50, 56, "whisker"), vertical(memory.high_frac, 50, 56, "whisker"),
  vertical(1, 4, 58, "limit"),
  s("text", { x: x(1), dx: late ? -6 : 6, y: 13, "text-anchor": late ? "end" : "start",
    class: "tick" }, `limit ${memory.limit}`));
}

function powers(low, high) {
  const found = [];
  for (let p = 2 ** Math.floor(Math.log2(low)); p < high * 2; p *= 2) found.push(p);
  return found;
}

/** Round numbers (1, 2, 5, 10 ...) from at most `low` to at least `high`. */
function rounds(low, high) {
  const found = [];
  for (let p = 10 ** Math.floor(Math.log10(low)); ; p *= 10) {
    for (const v of [p, 2 * p, 5 * p]) {
      if (v <= low) found.length = 0;
      found.push(v);
      if (v >= high && found.length > 1) return found;
    }
  }
}

const sparse = (all, most) => all.filter((_, i) => i % Math.ceil(all.length / most) === 0);

/** A letter after the last point of each line; letters do not overlap. */
function names(drawn, x, y) {
  const apart = 13;
  const ends = drawn.map(({ points, i }) => {
    const last = points[points.length - 1];
    return { i, x: x(last.gpus) + 10, y: y(last.rate_per_s) + 4 };
  }).sort((a, b) => a.y - b.y);
  ends.forEach((end, k) => {
    if (k && end.y - ends[k - 1].y < apart) end.y = ends[k - 1].y + apart;
  });
  return ends.map((end) => s("text", { x: end.x, y: end.y, class: "name" }, LETTERS[end.i]));
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** Chart of the throughput by GPUs, both on logarithmic axes, a line for each set-up. */
export function scalingChart(curves, width) {
  const drawn = curves.map((c, i) => ({ ...c, i })).filter((c) => c.points.length);
  const all = drawn.flatMap((c) => c.points);
  if (!all.length) return h("p", { class: "muted" }, "no number of nodes can be predicted");
  const [left, bottom, right, top] = [58, 36, 28, 12];
  const height = Math.min(Math.max(width * 0.5, 220), 340);
  const most = (key) => Math.max(...all.map((p) => p[key]));
  const least = (key) => Math.min(...all.map((p) => p[key]));
  const xs = powers(least("gpus"), most("gpus"));
  const ys = rounds(least("low"), most("high"));
  const scale = (values, from, to) => {
    const [a, b] = [Math.log2(values[0]), Math.log2(values[values.length - 1])];
    return (v) => (b === a ? (from + to) / 2 : from + ((Math.log2(v) - a) / (b - a)) * (to - from));
  };
  const ticks = xs.filter((p) => p / 2 < most("gpus"));
  const x = scale(ticks, left, width - right);
  const y = scale(ys, height - bottom, top);
  const path = (points, value) =>
    points.map((p, k) => `${k ? "L" : "M"}${x(p.gpus).toFixed(1)} ${y(value(p)).toFixed(1)}`).join("");
  const parts = [];
  for (const p of sparse(ticks, 8)) {
    parts.push(s("line", { x1: x(p), x2: x(p), y1: top, y2: height - bottom, class: "grid" }),
      s("text", { x: x(p), y: height - bottom + 16, "text-anchor": "middle", class: "tick" }, p));
  }
  for (const p of sparse(ys, 7)) {
    parts.push(s("line", { x1: left, x2: width - right, y1: y(p), y2: y(p), class: "grid" }),
      s("text", { x: left - 6, y: y(p) + 4, "text-anchor": "end", class: "tick" }, short.format(p)));
  }
  const units = [...new Set(drawn.map((c) => c.unit))].join(" or ");
  parts.push(s("text", { x: (left + width - right) / 2, y: height - 3, "text-anchor": "middle",
    class: "tick" }, `${units} by number of GPUs`));
  for (const { points, i } of drawn) {
    const ideal = points.filter((p) => p.ideal <= ys[ys.length - 1]);
    const band = `${path(points, (p) => p.high)}${path([...points].reverse(), (p) => p.low)
      .replace("M", "L")}Z`;
    parts.push(s("path", { d: band, class: `series-${i} interval` }));
    if (!i && ideal.length > 1) parts.push(s("path", { d: path(ideal, (p) => p.ideal), class: "ideal" }));
    parts.push(s("path", { d: path(points, (p) => p.rate_per_s), class: `line series-${i}`,
      "stroke-dasharray": DASHES[i] }));
    for (const p of points) {
      const mark = MARKS[i](x(p.gpus), y(p.rate_per_s));
      mark.setAttribute("class", `point series-${i}${p.asked ? " asked" : ""}${p.fits ? "" : " nofit"}`);
      mark.append(s("title", {}, `${LETTERS[i]}: ${p.nodes} nodes, ${p.gpus} GPUs: ${p.rate}, ` +
        `${p.speedup_text}, ${p.efficiency} efficiency, step ${p.step}${p.fits ? "" : ", does not fit"}`));
      parts.push(mark);
    }
  }
  parts.push(...names(drawn, x, y));
  const said = drawn.map(({ points, i }) => `${LETTERS[i]}: ${points
    .map((p) => `${p.gpus} GPUs ${p.rate}`).join(", ")}`).join("; ");
  return h("figure", {},
    s("svg", { class: "scaling", width, height, role: "img",
      "aria-label": `throughput over number of GPUs: ${said}` }, parts),
    h("figcaption", {}, "both axes logarithmic; shaded: 80 % interval; dotted: every GPU as fast ",
      "as one alone (A); larger: the set-up; hollow: does not fit"));
}

/** The scaling curves as a table. */
export function scalingTable(curves) {
  const rows = curves.flatMap((curve, i) => curve.points.map((p) => [`${LETTERS[i]}, ${p.nodes}`,
    p.gpus, p.step, p.rate, p.speedup_text, p.efficiency, p.fits ? "yes" : "NO"]));
  const left = curves.flatMap((c, i) => c.left_out.map((text) => `${LETTERS[i]}: left out ${text}`));
  return [table("Scaling as a table", ["nodes", "GPUs", "step", "rate", "speed-up", "efficiency",
    "fits"], rows), ...left.map((text) => h("p", { class: "muted" }, text))];
}
