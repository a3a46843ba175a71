// Figure 2 C: for the chosen output, the distribution of scores in each training class; the central line is the mean.

function boxesCard(explanation, account, width) {
  const { boxes, output, share } = account;
  const title = make("h2", {}, `Scores for ${explanation.outputs[output]}, by training class`);
  if (!boxes) {
    return make("section", { class: "card boxes" }, title, make("p", { class: "note" },
      `Of the kernel ${explanation.kernels[account.kernel].name} only the strongest samples are in this file. The distribution of all scores is shown by the kernel ${explanation.kernels[0].name}, or by “tangentkit serve”.`));
  }
  const labels = shownClasses(boxes.map((box) => (box ? Math.abs(box.mean) : -1))).filter((label) => boxes[label]);
  const headings = ["training class", "samples", "mean", "lower quartile", "median", "upper quartile", "whiskers", "fliers"];
  const rows = labels.map((label) => {
    const box = boxes[label];
    return [explanation.classes[label], count(box.count), signed(box.mean), signed(box.low), signed(box.median), signed(box.high), `${signed(box.from)} to ${signed(box.to)}`, count(box.fliers.length)];
  });
  return make("section", { class: "card boxes" }, title,
    boxesChart(explanation, boxes, labels, output, width),
    make("p", { class: "note" }, `Line: mean. Box: middle half. Whiskers: 1.5 boxes. Dots: beyond. The largest hundredth of the scores hold ${percent(share)} of their total size.`),
    labels.length < explanation.classes.length && make("p", { class: "note" }, `The ${labels.length} classes of the largest means are shown.`),
    numbersOf("Distributions as numbers", headings, rows));
}

function boxesChart(explanation, boxes, labels, output, width) {
  const longest = Math.max(...labels.map((label) => explanation.classes[label].length));
  const left = Math.min(110, 14 + 7 * Math.min(longest, 14)), right = 12, line = 27, below = 22;
  const height = labels.length * line + below;
  const low = Math.min(0, ...labels.map((label) => Math.min(boxes[label].from, boxes[label].fliers[0] ?? Infinity)));
  const high = Math.max(0, ...labels.map((label) => Math.max(boxes[label].to, boxes[label].fliers.at(-1) ?? -Infinity)));
  const x = scale(low, high > low ? high : low + 1, left, width - right);
  const levels = ticks(low, high > low ? high : low + 1, width < 420 ? 3 : 5);
  const said = labels.map((label) => `${explanation.classes[label]} ${digits(boxes[label].mean)}`).join(", ");
  const chart = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Box plots of scores for ${explanation.outputs[output]}; means by training class: ${said}` });
  levels.forEach((level) => chart.append(
    draw("line", { class: level === 0 ? "axis" : "rule", x1: x(level), x2: x(level), y1: 0, y2: height - below }),
    draw("text", { x: x(level), y: height - 6, "text-anchor": "middle" }, tickText(level, levels))));
  labels.forEach((label, place) => {
    const box = boxes[label], color = colorOf(label), middle = place * line + line / 2, up = middle - 8, down = middle + 8;
    chart.append(draw("text", { x: left - 8, y: middle + 4, "text-anchor": "end", class: explanation.classes[label] === explanation.outputs[output] ? "strong" : null }, cut(explanation.classes[label], 14)));
    // One path for all fliers: a thousand circles would be slow.
    const dots = box.fliers.map((value) => `M${x(value).toFixed(1)} ${middle.toFixed(1)}h0`).join("");
    chart.append(draw("g", { class: "one", "data-class": label, "data-fliers": box.fliers.length },
      dots && draw("path", { class: `fliers s${color}`, d: dots }),
      draw("path", { class: `whisker s${color}`, d: `M${x(box.from)} ${middle}H${x(box.low)}M${x(box.high)} ${middle}H${x(box.to)}M${x(box.from)} ${up + 4}V${down - 4}M${x(box.to)} ${up + 4}V${down - 4}` }),
      draw("rect", { class: `box f${color} s${color}`, x: x(box.low), y: up, width: Math.max(1, x(box.high) - x(box.low)), height: down - up, rx: 2 }),
      draw("line", { class: `mean s${color}`, x1: x(box.mean), x2: x(box.mean), y1: up - 1, y2: down + 1 })));
  });
  return chart;
}
