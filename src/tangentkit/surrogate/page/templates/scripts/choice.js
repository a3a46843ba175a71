// The choice: which test samples the filters leave, and in which order.

const ORDERS = {
  number: { name: "Number", of: (_, i) => i },
  margin: { name: "Margin of the network", of: (e, i) => e.network.margins[i] },
  truth: { name: "Probability of the true class", of: (e, i) => softmax(e.network.logits[i])[e.truth(i) ?? 0], needsTruth: true },
  distance: { name: "Distance of the surrogate", of: (e, i, view) => distance(e, i, view.kernel) },
  name: { name: "Name or text", of: (e, i) => e.test.names?.[i] ?? e.test.texts?.[i] ?? "" },
};

/** Half of the summed differences between the probabilities of network and surrogate. */
function distance(explanation, i, kernel) {
  const p = softmax(explanation.network.logits[i]), q = softmax(explanation.surrogates[kernel].logits[i]);
  return p.reduce((sum, share, c) => sum + Math.abs(share - q[c]), 0) / 2;
}

function choiceOf(explanation, view, places) {
  const pattern = patternOf(view.pattern);
  const keeps = [
    view.wrong && ((i) => explanation.isWrong(i)),
    view.differ && ((i) => explanation.differs(i, view.kernel)),
    view.low && ((i) => explanation.network.margins[i] < view.margin),
    view.starred && ((i) => view.isStarred("test", i)),
    view.truth !== "" && ((i) => explanation.truth(i) === Number(view.truth)),
    view.network !== "" && ((i) => explanation.network.classes[i] === Number(view.network)),
    view.surrogate !== "" && ((i) => explanation.surrogates[view.kernel].classes[i] === Number(view.surrogate)),
    pattern && ((i) => wordsOf(explanation, i).some((words) => pattern.test(words))),
    view.region && places && ((i) => isWithin(places, i, view.region)),
  ].filter(Boolean);
  const left = [];
  for (let i = 0; i < explanation.test.count; i++) if (keeps.every((keep) => keep(i))) left.push(i);
  return sorted(explanation, view, left);
}

function sorted(explanation, view, samples) {
  const keys = new Map(samples.map((i) => [i, ORDERS[view.sort].of(explanation, i, view)]));
  const sign = view.down ? -1 : 1;
  const compare = view.sort === "name" ? (a, b) => a.localeCompare(b, "en", { numeric: true }) : (a, b) => a - b;
  return samples.sort((a, b) => sign * compare(keys.get(a), keys.get(b)) || a - b);
}

function wordsOf(explanation, i) {
  const truth = explanation.truth(i);
  return [explanation.nameOf("test", i), explanation.textOf("test", i), truth === null ? "" : explanation.classes[truth]];
}

/** The regular expression that a text is, or null for none; an error where it is none. */
function patternOf(text) {
  return text ? new RegExp(text, "iu") : null;
}

function troubleOf(text) {
  try {
    patternOf(text);
    return "";
  } catch (error) {
    return error.message;
  }
}

function isWithin(places, i, [left, top, right, bottom]) {
  const x = places[2 * i], y = places[2 * i + 1];
  return x >= left && x <= right && y >= top && y <= bottom;
}
