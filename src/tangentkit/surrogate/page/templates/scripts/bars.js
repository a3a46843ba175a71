// Figure 2 B: for every output and every training class the mean score, as grouped bars.

function barsCard(explanation, view, account, width) {
  const { means, output } = account;
  const outputs = shownClasses(means.map((row, o) => (row === null ? -1 : o === output ? Infinity : Math.max(...row.map(Math.abs))))).filter((o) => means[o]);
  const labels = shownClasses(Array.from(means[output] ?? means[outputs[0]], (mean, label) => (explanation.sizes[label] ? Math.abs(mean) : -1)))
    .filter((label) => explanation.sizes[label]);
  const few = outputs.length < explanation.numOutputs || labels.length < explanation.classes.length;
  const rows = outputs.map((o) => [explanation.outputs[o], ...labels.map((label) => signed(means[o][label]))]);
  return make("section", { class: "card bars" },
    make("h2", {}, "Mean score of each training class, for every output"),
    barsChart(explanation, view, account, outputs, labels, width),
    make("ul", { class: "legend", "aria-label": "Training classes" }, labels.map((label) =>
      make("li", {}, make("span", { class: `key b${colorOf(label)}` }), explanation.classes[label]))),
    few && make("p", { class: "note" }, `The ${outputs.length} outputs and ${labels.length} training classes of the largest means are shown.`),
    numbersOf("Means as numbers", ["output", ...labels.map((label) => explanation.classes[label])], rows));
}

function barsChart(explanation, view, account, outputs, labels, width) {
  const { means, output } = account;
  const left = 46, right = 4, top = 8, below = 30, height = 250;
  const shown = outputs.flatMap((o) => labels.map((label) => means[o][label]));
  const low = Math.min(0, ...shown), high = Math.max(0, ...shown);
  const y = scale(low, high || (low ? 0 : 1), height - below, top);
  const group = (width - left - right) / outputs.length, bar = (group * 0.86) / labels.length;
  const levels = ticks(low, high || (low ? 0 : 1), 4);
  const told = means[output] ? output : outputs[0], best = labels.reduce((a, b) => (means[told][b] > means[told][a] ? b : a));
  const chart = draw("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Bars: for output ${explanation.outputs[told]} training class ${explanation.classes[best]} has the largest mean score, ${digits(means[told][best])}. Click an output to choose it.`,
  });
  const short = Math.max(3, Math.floor(group / 7.2));
  outputs.forEach((o, place) => {
    const x = left + place * group;
    const choose = () => view.set({ output: String(o) });
    chart.append(draw("rect", {
      class: `band${o === output ? " chosen" : ""}`, x, y: 0, width: group, height, rx: 5, tabindex: "0", role: "button", "data-output": o,
      "aria-pressed": String(o === output), "aria-label": `Scores for ${explanation.outputs[o]}`,
      onclick: choose, onkeydown: (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), choose()),
    }));
  });
  levels.forEach((level) => chart.append(
    draw("line", { class: "rule", x1: left, x2: width - right, y1: y(level), y2: y(level) }),
    draw("text", { x: left - 6, y: y(level) + 4, "text-anchor": "end" }, tickText(level, levels))));
  const marks = draw("g", { "pointer-events": "none", "aria-hidden": "true" });
  outputs.forEach((o, place) => {
    const x = left + place * group;
    labels.forEach((label, at) => {
      const from = y(Math.max(0, means[o][label])), to = y(Math.min(0, means[o][label]));
      marks.append(draw("rect", { class: `f${colorOf(label)}`, x: x + group * 0.07 + at * bar, y: from, width: Math.max(1, bar - 0.6), height: Math.max(0.5, to - from) }));
    });
    marks.append(draw("text", { x: x + group / 2, y: height - 10, "text-anchor": "middle", class: o === output ? "strong" : null }, cut(explanation.outputs[o], short)));
  });
  marks.append(draw("line", { class: "axis", x1: left, x2: width - right, y1: y(0), y2: y(0) }));
  chart.append(marks);
  return chart;
}

/** The numbers behind a chart, for those who read rather than look. */
function numbersOf(title, headings, rows) {
  return make("details", {}, make("summary", {}, title), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table(headings, rows, { caption: title })));
}
