// The four tiles: what the engine does now, and over the last two minutes. Owns their series; knows no step.

import { fitted } from "./canvas.js";
import { count, percent, rate } from "./format.js";
import { colour } from "./theme.js";

const WINDOW_MS = 120_000;
const LEAST_MS = 20_000;
const GAP_MS = 5_000;
const SMOOTH_MS = 1_000;
const [TIME, RUNNING, WAITING, KV_USED, QUERIES, HITS, PROMPT, GENERATED] = [0, 1, 2, 3, 4, 5, 6, 7];

export class Tiles {
  constructor() {
    this.points = [];
    this.stats = null;
    const share = (point) => (this.stats?.kv_blocks_total ? point[KV_USED] / this.stats.kv_blocks_total : 0);
    this.charts = [
      this.#chart("tile-requests", [(point) => point[RUNNING], (point) => point[WAITING]], 4),
      this.#chart("tile-tokens", [this.#perSecond(GENERATED), this.#perSecond(PROMPT)], 10),
      this.#chart("tile-kv", [share], 0.1),
      this.#chart("tile-prefix", [this.#perSecond(HITS), this.#perSecond(QUERIES)], 10),
    ];
  }

  replace(points, stats) {
    this.points = points;
    this.#show(stats);
  }

  add(point, stats) {
    this.points.push(point);
    const first = this.points.findIndex(([time]) => time > point[TIME] - WINDOW_MS - SMOOTH_MS);
    this.points.splice(0, first);
    this.#show(stats);
  }

  #show(stats) {
    this.stats = stats;
    const last = this.points.length - 1;
    write("tile-requests", "running", count(stats.num_running));
    write("tile-requests", "waiting", count(stats.num_waiting));
    write("tile-tokens", "generated", rate(this.#perSecond(GENERATED)(this.points[last], last)));
    write("tile-tokens", "prompt", rate(this.#perSecond(PROMPT)(this.points[last], last)));
    write("tile-kv", "share", percent(stats.kv_blocks_total ? stats.kv_blocks_used / stats.kv_blocks_total : 0));
    write("tile-kv", "blocks", `${count(stats.kv_blocks_used)} of ${count(stats.kv_blocks_total)} blocks`);
    write("tile-prefix", "rate", stats.prefix_cache_queries ? percent(stats.prefix_cache_hits / stats.prefix_cache_queries) : "–");
    write("tile-prefix", "hits", `${count(stats.prefix_cache_hits)} found of ${count(stats.prefix_cache_queries)}`);
    for (const request of this.charts) request();
  }

  /** Return a function of a point: the growth per second of one of its totals over the last second. */
  #perSecond(field) {
    return (point, index) => {
      let before = index;
      while (before > 0 && point[TIME] - this.points[before][TIME] < SMOOTH_MS) before -= 1;
      const span = point[TIME] - this.points[before][TIME];
      return span ? Math.max(0, (point[field] - this.points[before][field]) / span) * 1000 : 0;
    };
  }

  #chart(tile, series, least) {
    const canvas = document.querySelector(`#${tile} canvas`);
    return fitted(canvas, (context, width, height) => {
      if (this.points.length < 2) return;
      const end = this.points.at(-1)[TIME];
      const span = Math.max(LEAST_MS, Math.min(WINDOW_MS, end - this.points[0][TIME]));
      const x = (point) => width - ((end - point[TIME]) / span) * width;
      const shown = this.points.map((point, index) => [point, index]).filter(([point]) => x(point) > -4);
      const lines = series.map((value) => shown.map(([point, index]) => [x(point), value(point, index)]));
      const gap = (GAP_MS / span) * width;
      const top = Math.max(least, ...lines.flat().map(([, value]) => value)) * 1.08;
      const y = (value) => height - 1.5 - (value / top) * (height - 6);
      const placed = lines.map((line) => line.map(([left, value]) => [left, y(value)]));
      for (const [order, line] of [...placed.entries()].reverse()) {
        for (const part of unbroken(line, gap)) trace(context, part, height, colour(order ? "second" : "accent"), order === 0);
      }
    });
  }
}

/** Cut a line where nobody watched, so that nothing was asked. */
function unbroken(line, gap) {
  const parts = [];
  line.forEach((place, index) => {
    if (index === 0 || place[0] - line[index - 1][0] > gap) parts.push([]);
    parts.at(-1).push(place);
  });
  return parts;
}

function trace(context, line, height, stroke, filled) {
  const path = new Path2D();
  line.forEach(([x, y], index) => (index ? path.lineTo(x, y) : path.moveTo(x, y)));
  context.strokeStyle = stroke;
  context.lineWidth = filled ? 2 : 1.4;
  context.lineJoin = "round";
  if (filled) {
    const area = new Path2D(path);
    area.lineTo(line.at(-1)[0], height);
    area.lineTo(line[0][0], height);
    context.globalAlpha = 0.14;
    context.fillStyle = stroke;
    context.fill(area);
    context.globalAlpha = 1;
  }
  context.stroke(path);
}

function write(tile, name, text) {
  const output = document.querySelector(`#${tile} [data-value="${name}"]`);
  if (output.textContent !== text) output.textContent = text;
}
