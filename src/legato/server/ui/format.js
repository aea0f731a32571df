// How figures are written. Owns units and rounding, nothing else.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export const count = (value) => (value < 1e6 ? whole.format(value) : `${tenth.format(value / 1e6)} M`);
export const rate = (value) => (value < 9.95 ? tenth.format(value) : count(value));
export const percent = (share) => `${share > 0 && share < 0.0995 ? tenth.format(share * 100) : whole.format(share * 100)} %`;

export function bytes(value) {
  if (value == null) return "–";
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit && value < 100 ? value.toFixed(1) : whole.format(value)} ${units[unit]}`;
}

export function microseconds(value) {
  if (value == null) return "not measured";
  if (value < 1000) return `${whole.format(value)} µs`;
  return value < 1e6 ? `${short.format(value / 1e3)} ms` : `${short.format(value / 1e6)} s`;
}

export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
