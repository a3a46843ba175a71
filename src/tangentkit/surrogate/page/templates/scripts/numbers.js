// Numbers as people write them.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function count(number) {
  return grouped.format(number);
}

function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

/** Three digits, with a true minus sign. */
function digits(number, places = 3) {
  if (number === 0) return "0";
  const size = Math.abs(number);
  const text = size >= 1e5 || size < 1e-3 ? size.toExponential(places - 1) : plain(size, places);
  return (number < 0 ? "−" : "") + text.replace("e-", "e−").replace("e+", "e");
}

function plain(size, places) {
  const decimals = Math.max(0, places - 1 - Math.floor(Math.log10(size)));
  return size.toFixed(Math.min(decimals, 6));
}

function signed(number) {
  return number > 0 ? `+${digits(number)}` : digits(number);
}

function percent(share) {
  return `${(100 * share).toFixed(share > 0.0995 ? 0 : 1)} %`;
}

function softmax(logits) {
  if (logits.length === 1) {
    const one = 1 / (1 + Math.exp(-logits[0]));
    return [1 - one, one];
  }
  const top = Math.max(...logits);
  const sizes = Array.from(logits, (logit) => Math.exp(logit - top));
  const total = sizes.reduce((sum, size) => sum + size, 0);
  return sizes.map((size) => size / total);
}

/** The class that logits speak for; one logit alone speaks for the second of two classes. */
function classOf(logits) {
  if (logits.length === 1) return logits[0] > 0 ? 1 : 0;
  let best = 0;
  for (let c = 1; c < logits.length; c++) if (logits[c] > logits[best]) best = c;
  return best;
}

/** How far the first class is ahead of the second, in probability. */
function marginOf(logits) {
  const ordered = softmax(logits).sort((a, b) => b - a);
  return ordered[0] - ordered[1];
}
