// Draws steps: bars of tokens above a line, host and device time below it. Owns no state; knows no event.

import { count, microseconds } from "./format.js";
import { colour } from "./theme.js";

export const STEP = { number: 0, stage: 1, requested: 2, mode: 3, reason: 4, key: 5, reqs: 6, tokens: 7, padded: 8, host: 9, device: 10 };
const GUTTER = 52;
const ABOVE = 0.66;

/** Return how many bars of `pitch` pixels fit into `width`. */
export const capacity = (width, pitch) => Math.max(1, Math.floor((width - GUTTER) / pitch));

/** Return the place of a bar's left edge; the last of `shown` stands at the right, moved by `shift` pixels. */
export const leftOf = (index, shown, width, pitch, shift) => width - (shown - index) * pitch + shift;

export function paintSteps(context, width, height, { steps, pitch, shift, cursor }) {
  const line = Math.round(height * ABOVE);
  const room = height - line - 12;
  const mostTokens = 2 ** Math.ceil(Math.log2(Math.max(8, ...steps.map((step) => step[STEP.padded]))));
  const mostTime = niceTop(Math.max(20, ...steps.map((step) => Math.max(step[STEP.host], step[STEP.device] ?? 0))));
  // A square root keeps a decode of four tokens visible beside a prefill of two thousand.
  const up = (tokens) => Math.sqrt(tokens / mostTokens) * (line - 22);
  const down = (time) => Math.sqrt(time / mostTime) * room;
  grid(context, width, line, up, down, mostTokens, mostTime);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, height);
  context.clip();
  const bar = Math.max(1.5, pitch - (pitch > 6 ? 2 : pitch > 3 ? 1 : 0.5));
  steps.forEach((step, index) => {
    const left = leftOf(index, steps.length, width, pitch, shift);
    if (left > width || left + pitch < GUTTER) return;
    if (index === cursor) highlight(context, left, pitch, height);
    context.globalAlpha = step[STEP.stage] === "target" ? 1 : 0.5;
    tokens(context, step, left, bar, line, up);
    context.globalAlpha = 1;
    times(context, step, left, bar, line, down);
  });
  context.restore();
}

function niceTop(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 6, 8, 10].map((factor) => factor * power).find((top) => top >= value);
}

function grid(context, width, line, up, down, mostTokens, mostTime) {
  context.font = "11px system-ui, sans-serif";
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.strokeStyle = colour("line");
  context.fillStyle = colour("soft");
  context.lineWidth = 1;
  const rule = (y, text) => {
    context.beginPath();
    context.moveTo(GUTTER, Math.round(y) + 0.5);
    context.lineTo(width, Math.round(y) + 0.5);
    context.stroke();
    context.fillText(text, GUTTER - 7, y);
  };
  for (const share of [0.25, 1]) rule(line - up(mostTokens * share), count(mostTokens * share));
  for (const share of [0.25, 1]) rule(line + 2 + down(mostTime * share), microseconds(mostTime * share));
}

function highlight(context, left, pitch, height) {
  context.fillStyle = colour("ink");
  context.globalAlpha = 0.1;
  context.fillRect(left - 1, 0, pitch, height);
  context.globalAlpha = 1;
}

function tokens(context, step, left, bar, line, up) {
  const fill = colour(step[STEP.mode]);
  const real = Math.max(2, up(step[STEP.tokens]));
  const all = Math.max(real, up(step[STEP.padded]));
  context.fillStyle = fill;
  context.beginPath();
  context.roundRect(left, line - real, bar, real, all > real + 1 ? 0 : [Math.min(3, bar / 2), Math.min(3, bar / 2), 0, 0]);
  context.fill();
  if (all > real + 1) hatched(context, left, line - all, bar, all - real, fill);
  if (step[STEP.reason] !== null) {
    context.fillStyle = colour("ink");
    context.beginPath();
    context.arc(left + bar / 2, line - all - 6, Math.min(2.4, bar / 2 + 0.4), 0, 7);
    context.fill();
  }
}

function hatched(context, left, top, width, height, stroke) {
  context.save();
  context.beginPath();
  context.rect(left, top, width, height);
  context.clip();
  context.strokeStyle = stroke;
  context.fillStyle = stroke;
  const opaque = context.globalAlpha;
  context.globalAlpha = opaque * 0.16;
  context.fillRect(left, top, width, height);
  context.globalAlpha = opaque * 0.85;
  context.lineWidth = 1.1;
  context.beginPath();
  // Lines of one pattern for all bars, so that neighbours join.
  for (let offset = Math.floor((top - width) / 5) * 5; offset < top + height + width; offset += 5) {
    context.moveTo(left, offset + width);
    context.lineTo(left + width, offset);
  }
  context.stroke();
  context.strokeRect(left + 0.5, top + 0.5, width - 1, height);
  context.restore();
}

function times(context, step, left, bar, line, down) {
  context.fillStyle = colour("host");
  const device = step[STEP.device];
  if (device === null) {
    context.fillRect(left, line + 2, bar, Math.max(1, down(step[STEP.host])));
    return;
  }
  context.fillRect(left, line + 2, bar / 2, Math.max(1, down(step[STEP.host])));
  context.fillStyle = colour("device");
  context.fillRect(left + bar / 2, line + 2, bar / 2, Math.max(1, down(device)));
}
