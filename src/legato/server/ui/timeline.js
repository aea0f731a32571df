// The timeline of steps: what is shown, what is pointed at, and what is told of it. Drawing is steps_painter.js.

import { fitted } from "./canvas.js";
import { count, element, microseconds, percent } from "./format.js";
import { REASONS } from "./reasons.js";
import { capacity, leftOf, paintSteps, STEP } from "./steps_painter.js";

const KEPT = 4000;
const PITCHES = [3, 5, 8, 12, 18];
const SETTLE_MS = 220;
const MODES = ["full", "piecewise", "eager"];

export class Timeline {
  constructor() {
    this.canvas = document.getElementById("steps");
    this.tip = document.getElementById("tip");
    this.steps = [];
    this.waiting = []; // came while paused
    this.end = 0; // steps before this index are shown, the last at the right edge
    this.cursor = null; // index into steps
    this.pitch = 2;
    this.shift = 0;
    this.paused = false;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.request = fitted(this.canvas, (context, width, height) => this.#draw(context, width, height));
    this.#listen();
  }

  replace(rows) {
    this.cursor = null;
    this.steps = [];
    this.waiting = [];
    this.add(rows);
  }

  add(rows) {
    if (this.paused) {
      this.waiting.push(...rows);
      this.waiting.splice(0, this.waiting.length - KEPT);
      return;
    }
    if (!rows.length && this.steps.length) return;
    this.steps.push(...rows);
    const dropped = Math.max(0, this.steps.length - KEPT);
    this.steps.splice(0, dropped);
    this.end = this.steps.length;
    if (this.cursor !== null) this.cursor = Math.max(0, this.cursor - dropped);
    document.getElementById("empty").hidden = this.steps.length > 0;
    if (!this.still.matches) this.shift = Math.min(this.canvas.clientWidth / 3, this.shift + rows.length * PITCHES[this.pitch]);
    this.canvas.dataset.last = this.steps.at(-1)?.[STEP.number] ?? "";
    this.request();
  }

  /** Show how many steps ran in each mode since the server's start. */
  count(stepsByStageAndMode, padding) {
    const totals = Object.fromEntries(MODES.map((mode) => [mode, 0]));
    for (const [both, number] of Object.entries(stepsByStageAndMode)) totals[both.split(" ")[1]] += number;
    const all = Object.values(totals).reduce((sum, number) => sum + number, 0) || 1;
    document.getElementById("modes").replaceChildren(
      ...MODES.map((mode) => element("li", {}, element("i", { className: `swatch ${mode}` }), `${mode.toUpperCase()} `,
        element("b", { textContent: count(totals[mode]) }), ` ${percent(totals[mode] / all)}`)),
      element("li", {}, "padding ", element("b", { textContent: count(padding) }), " tokens"),
    );
  }

  #shown() {
    const fit = capacity(this.canvas.clientWidth, PITCHES[this.pitch]) + 2;
    return this.steps.slice(Math.max(0, this.end - fit), this.end);
  }

  #draw(context, width, height) {
    const shown = this.#shown();
    const cursor = this.cursor === null ? null : this.cursor - (this.end - shown.length);
    paintSteps(context, width, height, { steps: shown, pitch: PITCHES[this.pitch], shift: this.shift, cursor });
    this.#tell(shown[cursor ?? -1], cursor, shown.length, width);
    const now = performance.now();
    if (this.shift > 0.5) {
      const passed = Math.min(50, now - (this.drawn ?? now - 16));
      this.shift *= Math.exp(-passed / SETTLE_MS * 2);
      this.request();
    } else {
      this.shift = 0;
    }
    this.drawn = this.shift ? now : undefined;
  }

  #tell(step, index, shown, width) {
    this.tip.hidden = !step;
    if (!step) return;
    const left = leftOf(index, shown, width, PITCHES[this.pitch], this.shift);
    const room = this.tip.offsetWidth;
    const beside = left + PITCHES[this.pitch] + 12;
    this.tip.style.left = `${Math.max(0, Math.min(width - room, beside + room > width ? left - room - 12 : beside))}px`;
    if (this.told === step) return;
    this.told = step;
    this.tip.replaceChildren(...description(step));
  }

  #point(event) {
    const { left, width } = this.canvas.getBoundingClientRect();
    const back = Math.floor((width + this.shift - (event.clientX - left)) / PITCHES[this.pitch]);
    const index = this.end - 1 - back;
    this.#select(index >= 0 && index < this.end ? index : null);
  }

  #select(index) {
    this.cursor = index;
    this.request();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.#select(null));
    canvas.addEventListener("blur", () => this.#select(null));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("wheel", (event) => {
      if (!this.paused || Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      this.#pan(this.end + Math.round(event.deltaX / PITCHES[this.pitch]));
    }, { passive: false });
    document.getElementById("pause").addEventListener("click", () => this.pause(!this.paused));
    document.getElementById("wider").addEventListener("click", () => this.#zoom(1));
    document.getElementById("narrower").addEventListener("click", () => this.#zoom(-1));
  }

  #key(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };
    if (event.key === " ") this.pause(!this.paused);
    else if (event.key === "Escape") this.#select(null);
    else if (event.key in moves && this.steps.length) {
      this.pause(true); // what is read must not move away
      const from = this.cursor ?? this.steps.length - Math.sign(moves[event.key]);
      const index = Math.max(0, Math.min(this.steps.length - 1, from + moves[event.key]));
      const fit = capacity(this.canvas.clientWidth, PITCHES[this.pitch]);
      if (index >= this.end || index < this.end - fit) this.#pan(index + (index < this.end - fit ? fit : 1));
      this.#select(index);
      document.getElementById("spoken").textContent = spoken(this.steps[index]);
    } else return;
    event.preventDefault();
  }

  #pan(end) {
    this.end = Math.max(1, Math.min(this.steps.length, end));
    this.request();
  }

  #zoom(by) {
    this.pitch = Math.max(0, Math.min(PITCHES.length - 1, this.pitch + by));
    this.request();
  }

  pause(paused) {
    if (this.paused === paused) return;
    this.paused = paused;
    const button = document.getElementById("pause");
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
    if (!paused) this.add(this.waiting.splice(0));
  }
}

function description(step) {
  const lines = [
    ["requests", count(step[STEP.reqs])],
    ["tokens", count(step[STEP.tokens])],
    ["padding", count(step[STEP.padded] - step[STEP.tokens])],
    ["host", microseconds(step[STEP.host])],
    ["device", microseconds(step[STEP.device])],
  ];
  const asked = step[STEP.requested] === step[STEP.mode] ? "" : `, ${step[STEP.requested].toUpperCase()} was asked for`;
  return [
    element("strong", {}, element("i", { className: `swatch ${step[STEP.mode]}` }), `${step[STEP.mode].toUpperCase()}${asked}`),
    element("code", { textContent: step[STEP.key] ?? `${step[STEP.stage]}, ${step[STEP.mode] === "full" ? "in its round's graph" : "no graph"}` }),
    element("dl", {}, ...[["step", count(step[STEP.number])], ...lines].flatMap(([name, value]) => [
      element("dt", { textContent: name }), element("dd", { textContent: value })])),
    ...(step[STEP.reason] === null ? [] : [element("p", { className: "reason" },
      element("code", { textContent: step[STEP.reason] }), ` ${REASONS[step[STEP.reason]] ?? ""}`)]),
  ];
}

function spoken(step) {
  const reason = step[STEP.reason] === null ? "" : `, ${step[STEP.reason].replaceAll("_", " ")}`;
  return `Step ${step[STEP.number]}, ${step[STEP.stage]}, ${step[STEP.mode]}${reason}: ${step[STEP.reqs]} requests, ` +
    `${step[STEP.tokens]} tokens, ${step[STEP.padded] - step[STEP.tokens]} padding, host ${microseconds(step[STEP.host])}`;
}
