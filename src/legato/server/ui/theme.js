// Light, dark, or as the system has it. Owns the switch, and the colours as canvases need them.

const NAME = "legato-theme";
const ORDER = ["auto", "light", "dark"];
const LABELS = { auto: "automatic", light: "light", dark: "dark" };
const listeners = [];
let cache = {};

/** Return the colour that a custom property of the style sheet has now. */
export function colour(name) {
  cache[name] ??= resolve(name);
  return cache[name];
}

export function onColours(listener) { listeners.push(listener); }

export function startTheme() {
  const button = document.getElementById("theme");
  const apply = (theme) => {
    document.documentElement.dataset.theme = theme;
    button.textContent = theme[0].toUpperCase() + theme.slice(1);
    button.setAttribute("aria-label", `Colour scheme: ${LABELS[theme]}`);
    changed();
  };
  const stored = localStorage.getItem(NAME);
  apply(ORDER.includes(stored) ? stored : "auto");
  button.addEventListener("click", () => {
    const next = ORDER[(ORDER.indexOf(document.documentElement.dataset.theme) + 1) % ORDER.length];
    localStorage.setItem(NAME, next);
    apply(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
}

function changed() {
  cache = {};
  for (const listener of listeners) listener();
}

function resolve(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const value = getComputedStyle(probe).color;
  probe.remove();
  return value;
}
