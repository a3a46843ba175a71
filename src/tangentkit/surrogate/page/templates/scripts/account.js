// The account of one sample: scores A(x, t_j)^c = W_jc κ(x, t_j) + b_c / m, and what they come to.

/** Everything that is shown of sample i by one kernel for output c. */
async function accountOf(explanation, kernel, i, c) {
  const row = await explanation.row(kernel, i);
  const account = row ? await wholeAccount(explanation, kernel, row, c) : await shortAccount(explanation, kernel, i, c);
  return { ...account, kernel, sample: i, output: c };
}

async function wholeAccount(explanation, kernel, row, c) {
  const weights = await explanation.piece(`weights-${kernel}`);
  const { offset } = explanation.kernels[kernel];
  const scores = scoresOf(row.values, weights, offset, c);
  const ranked = scores.slice().sort(); // numbers alone sort ten times as fast as their places
  const means = classMeans(row.values, weights, offset, explanation.train.labels, explanation.sizes);
  return {
    means,
    boxes: boxesOf(scores, explanation.train.labels, explanation.classes.length),
    sums: means.map((ofClasses) => ofClasses.reduce((sum, mean, label) => sum + mean * explanation.sizes[label], 0)),
    bounds: sizesOfWeights(weights, offset.length).map((size) => row.bound * size),
    bound: row.bound,
    share: shareOfFirst(scores),
    strongest(side, k) {
      return extremes(scores, ranked, side, k).map((j) => ({ j, score: scores[j], bound: row.bound * Math.abs(weights[j * offset.length + c]) }))
        .filter(({ score }) => (side === "for" ? score > 0 : score < 0));
    },
    most: scores.length,
  };
}

/** Of a kernel that is not there whole: what was kept of it, of a few outputs at each sample. */
async function shortAccount(explanation, kernel, i, c) {
  const [outputs, means, indices, scores] = await Promise.all([
    explanation.piece(`outputs-${kernel}`, Uint32Array), explanation.piece(`means-${kernel}`),
    explanation.piece(`indices-${kernel}`, Uint32Array), explanation.piece(`scores-${kernel}`),
  ]);
  const kept = outputs.length / explanation.test.count, classes = explanation.classes.length;
  const k = indices.length / (outputs.length * 2);
  const slots = new Map(Array.from(outputs.subarray(i * kept, (i + 1) * kept), (output, s) => [output, i * kept + s]));
  return {
    means: explanation.outputs.map((_, o) => (slots.has(o) ? means.subarray(slots.get(o) * classes, (slots.get(o) + 1) * classes) : null)),
    boxes: null, sums: null, bounds: null, bound: 0, share: null,
    strongest(side, wanted) {
      if (!slots.has(c)) return [];
      const start = (slots.get(c) * 2 + (side === "for" ? 0 : 1)) * k;
      return Array.from({ length: Math.min(k, wanted) }, (_, s) => ({ j: indices[start + s], score: scores[start + s], bound: 0 }))
        .filter(({ score }) => (side === "for" ? score > 0 : score < 0));
    },
    most: k,
  };
}

function scoresOf(values, weights, offset, c) {
  const outputs = offset.length, share = offset[c] / values.length;
  const scores = new Float64Array(values.length);
  for (let j = 0; j < values.length; j++) scores[j] = weights[j * outputs + c] * values[j] + share;
  return scores;
}

/** The places of the k largest scores, or of the k least; of equals the first. */
function extremes(scores, ranked, side, k) {
  const m = scores.length, sign = side === "for" ? 1 : -1;
  const last = side === "for" ? ranked[Math.max(0, m - k)] : ranked[Math.min(k, m) - 1];
  const found = [];
  for (let j = 0; j < m; j++) if (sign * (scores[j] - last) >= 0) found.push(j);
  return found.sort((a, b) => sign * (scores[b] - scores[a]) || a - b).slice(0, k);
}

function classMeans(values, weights, offset, labels, sizes) {
  const outputs = offset.length;
  const sums = Array.from({ length: outputs }, () => new Float64Array(sizes.length));
  for (let j = 0; j < values.length; j++) {
    const label = labels[j];
    for (let c = 0; c < outputs; c++) sums[c][label] += weights[j * outputs + c] * values[j];
  }
  return sums.map((sum, c) => sum.map((total, label) => (sizes[label] ? total / sizes[label] + offset[c] / values.length : 0)));
}

function sumOf(scores) {
  let sum = 0;
  for (const score of scores) sum += score;
  return sum;
}

/** Σ_j |W_jc| of every output, summed once. */
const weighed = new WeakMap();

function sizesOfWeights(weights, outputs) {
  if (!weighed.has(weights)) {
    const sizes = new Array(outputs).fill(0);
    for (let place = 0; place < weights.length; place++) sizes[place % outputs] += Math.abs(weights[place]);
    weighed.set(weights, sizes);
  }
  return weighed.get(weights);
}

/** The share of Σ |A| that the largest hundredth of the scores hold. */
function shareOfFirst(scores) {
  const sizes = scores.map(Math.abs).sort();
  const total = sumOf(sizes);
  return total ? sumOf(sizes.subarray(sizes.length - Math.ceil(sizes.length / 100))) / total : 0;
}

function boxesOf(scores, labels, classes) {
  const groups = Array.from({ length: classes }, () => []);
  for (let j = 0; j < scores.length; j++) groups[labels[j]].push(scores[j]);
  return groups.map((group) => (group.length ? boxOf(Float64Array.from(group)) : null));
}

/** Mean, quartiles, and whiskers to the last values within 1.5 times the box; what lies beyond are fliers. */
function boxOf(values) {
  const sorted = values.sort();
  const mean = sumOf(sorted) / sorted.length;
  const low = quantile(sorted, 0.25), high = quantile(sorted, 0.75);
  const reach = 1.5 * (high - low);
  const inside = sorted.filter((value) => value >= low - reach && value <= high + reach);
  const fliers = Array.from(sorted.filter((value) => value < low - reach || value > high + reach));
  return {
    count: sorted.length, mean, low, high, median: quantile(sorted, 0.5), fliers,
    from: Math.min(low, inside[0]), to: Math.max(high, inside[inside.length - 1]),
  };
}

function quantile(sorted, share) {
  const place = share * (sorted.length - 1), below = Math.floor(place);
  return sorted[below] + (place - below) * (sorted[Math.min(below + 1, sorted.length - 1)] - sorted[below]);
}
