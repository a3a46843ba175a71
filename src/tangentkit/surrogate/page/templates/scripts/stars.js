// Stars: kept by this browser for this page, and saved as CSV.

function recallStars(explanation) {
  try {
    return JSON.parse(localStorage.getItem(`tangentkit-stars-${explanation.id}`)) ?? [];
  } catch {
    return []; // a browser that keeps nothing for files
  }
}

function keepStars(explanation, stars) {
  try {
    localStorage.setItem(`tangentkit-stars-${explanation.id}`, JSON.stringify([...stars]));
  } catch {
    // Nothing is kept; the link and the CSV still have them.
  }
}

function isStar(explanation, key) {
  const found = /^(test|train)-(\d{1,9})$/.exec(key);
  return found !== null && Number(found[2]) < explanation[found[1]].count;
}

function starsAsCsv(explanation, view) {
  const headings = ["set", "number", "name", "label", "network", "surrogate", "margin", "text"];
  const keys = [...view.stars].map((key) => key.split("-")).map(([set, i]) => [set, Number(i)]);
  keys.sort((a, b) => a[0].localeCompare(b[0]) || a[1] - b[1]);
  const rows = keys.map(([set, i]) => {
    const label = explanation[set].labels?.[i];
    const said = set === "test"
      ? [explanation.classes[explanation.network.classes[i]], explanation.predicts(view.kernel) ? explanation.classes[explanation.surrogates[view.kernel].classes[i]] : "", explanation.network.margins[i].toFixed(4)]
      : ["", "", ""];
    return [set, i, explanation[set].names?.[i] ?? "", label === undefined ? "" : explanation.classes[label], ...said, explanation.textOf(set, i)];
  });
  return [headings, ...rows].map((row) => row.map(cellText).join(",")).join("\r\n") + "\r\n";
}

/** A cell in quotes. A leading = + - @ would be a formula to a spreadsheet, so that such a text gets an apostrophe. */
function cellText(value) {
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return `"${text.replaceAll('"', '""')}"`;
}

function saveText(name, text) {
  const address = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
  const anchor = make("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
