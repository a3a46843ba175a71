// What charts share: scales, ticks, and which classes are shown where there are many.

const MOST_SHOWN = 12;
/** Classes have one color each; of more than twelve, colors repeat. */
const colorOf = (label) => label % 12;

function scale(from, to, start, end) {
  const factor = to === from ? 0 : (end - start) / (to - from);
  return (value) => start + (value - from) * factor;
}

/** A few round numbers between two others. */
function ticks(from, to, wanted = 5) {
  const span = to - from;
  if (!(span > 0)) return [from];
  const rough = span / wanted, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(from / step - 1e-9), last = Math.floor(to / step + 1e-9);
  return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
}

/** Numbers of the classes to be shown: all, or those of the largest size in their usual order. */
function shownClasses(sizes, most = MOST_SHOWN) {
  const all = sizes.map((_, label) => label);
  if (all.length <= most) return all;
  return all.sort((a, b) => sizes[b] - sizes[a]).slice(0, most).sort((a, b) => a - b);
}

/** Ticks of one chart with as many decimals as tell them apart. */
function tickText(value, all) {
  const step = all.length > 1 ? Math.abs(all[1] - all[0]) : Math.abs(value);
  if (value === 0 || step === 0) return "0";
  if (step < 1e-4 || step >= 1e6) return digits(value, 2);
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return (value < 0 ? "−" : "") + Math.abs(value).toFixed(decimals);
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
