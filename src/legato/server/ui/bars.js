// Fallbacks by reason, and drafts accepted by position, as horizontal bars.

import { count, element, percent } from "./format.js";
import { REASONS } from "./reasons.js";

export function showFallbacks(stats) {
  const steps = Object.values(stats.graph_steps).reduce((sum, number) => sum + number, 0) || 1;
  const found = Object.entries(stats.graph_fallbacks).sort(([, one], [, other]) => other - one);
  fill("fallbacks", "Every step so far ran as it should.", found.map(([both, number]) => {
    const [stage, reason] = both.split(" ");
    return { name: reason, note: REASONS[reason], aside: `${stage}, ${count(number)} steps`, share: number / steps, fill: "var(--eager)" };
  }));
}

export function showAcceptance(stats) {
  const { spec_decode_drafts: rounds, spec_decode_accepted_per_position: accepted } = stats;
  const lines = rounds ? accepted.map((number, position) => ({
    name: `draft ${position + 1}`, aside: percent(number / rounds), share: number / rounds, fill: "var(--full)",
  })) : [];
  if (rounds) lines[0].note = `${(1 + stats.spec_decode_accepted_tokens / rounds).toFixed(2)} tokens per round on average, over ${count(rounds)} rounds`;
  fill("acceptance", "No drafts: this server decodes without speculation, or nothing was decoded yet.", lines);
}

function fill(list, nothing, lines) {
  const state = JSON.stringify(lines);
  const place = document.getElementById(list);
  if (place.dataset.state === state) return;
  place.dataset.state = state;
  if (!lines.length) return place.replaceChildren(element("li", { className: "note", textContent: nothing }));
  place.replaceChildren(...lines.map((line) => {
    const bar = element("i");
    bar.style.setProperty("--share", `${Math.max(0.5, line.share * 100)}%`);
    bar.style.setProperty("--fill", line.fill);
    return element("li", {},
      element("div", {}, element("code", { textContent: line.name }), element("span", { textContent: line.aside })),
      element("div", { className: "track" }, bar),
      ...(line.note ? [element("p", { textContent: line.note })] : []));
  }));
}
