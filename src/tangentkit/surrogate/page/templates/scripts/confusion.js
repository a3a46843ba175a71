// The confusion matrix; a cell leaves its samples in the list.

const PAIRS = {
  "truth-network": ["truth", "network"],
  "truth-surrogate": ["truth", "surrogate"],
  "network-surrogate": ["network", "surrogate"],
};
const WHO = { truth: "true class", network: "network says", surrogate: "surrogate says" };

class ConfusionPanel {
  constructor(explanation, view) {
    Object.assign(this, { explanation, view, panel: byId("panel-confusion") });
  }

  show() {
    const { explanation: e, view } = this;
    if (view.tab !== "confusion") return;
    const known = Object.keys(PAIRS).filter((pair) => (e.test.labels || !pair.startsWith("truth")) && (e.predicts(view.kernel) || !pair.endsWith("surrogate")));
    if (!known.length) {
      this.panel.replaceChildren(make("p", { class: "card" }, "There are no true classes and no surrogate to compare the network with."));
      return;
    }
    const pair = known.includes(view.compare) ? view.compare : known[0];
    const [down, across] = PAIRS[pair];
    const counts = this.#counts(down, across);
    const shown = shownClasses(counts.map((row, a) => row.reduce((sum, n, b) => sum + (a === b ? 0 : n + counts[b][a]), 0)), 24);
    const right = counts.reduce((sum, row, a) => sum + row[a], 0);
    const choose = make("select", { id: "compare", onchange: (event) => view.set({ compare: event.target.value }) },
      known.map((name) => option(name, `${WHO[PAIRS[name][0]]} × ${WHO[PAIRS[name][1]]}`)));
    choose.value = pair;
    this.panel.replaceChildren(make("section", { class: "card" },
      make("div", { class: "bar" }, make("label", {}, "Compare ", choose),
        make("span", { class: "soft" }, `${count(right)} of ${count(e.test.count)} on the diagonal (${percent(right / e.test.count)}). A cell shows its samples in the list.`)),
      make("div", { class: "scroll" }, this.#table(counts, shown, down, across)),
      shown.length < e.classes.length && make("p", { class: "note" }, `The ${shown.length} classes that are confused most are shown.`)));
  }

  #counts(down, across) {
    const e = this.explanation, labels = { truth: e.test.labels, network: e.network.classes, surrogate: e.surrogates[this.view.kernel].classes };
    const counts = e.classes.map(() => new Array(e.classes.length).fill(0));
    for (let i = 0; i < e.test.count; i++) counts[labels[down][i]][labels[across][i]]++;
    return counts;
  }

  #table(counts, shown, down, across) {
    const { explanation: e, view } = this;
    const largest = Math.max(1, ...shown.flatMap((a) => shown.map((b) => (a === b ? 0 : counts[a][b]))));
    const cell = (a, b) => {
      const number = counts[a][b], isChosen = view[down] === String(a) && view[across] === String(b);
      const heat = make("span", { class: "heat" });
      heat.style.opacity = number ? (a === b ? 0.22 : 0.12 + (0.6 * number) / largest) : 0;
      return make("td", { class: `${a === b ? "same" : ""}${isChosen ? " chosen" : ""}` }, heat, make("button", {
        type: "button", class: "cell", disabled: number === 0, "data-cell": `${a}-${b}`, "aria-pressed": String(isChosen),
        "aria-label": `${counted(number, "sample")}: ${WHO[down]} ${e.classes[a]}, ${WHO[across]} ${e.classes[b]}`,
        onclick: () => view.set(isChosen ? { [down]: "", [across]: "" } : { truth: "", network: "", surrogate: "", [down]: String(a), [across]: String(b) }),
      }, number ? count(number) : "·"));
    };
    return make("table", { class: "confusion" },
      make("caption", { class: "unseen" }, `Rows: ${WHO[down]}. Columns: ${WHO[across]}.`),
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, `${WHO[across]} →\n${WHO[down]} ↓`), shown.map((b) => make("th", { scope: "col", title: e.classes[b] }, cut(e.classes[b], 11))))),
      make("tbody", {}, shown.map((a) => make("tr", {}, make("th", { scope: "row", title: e.classes[a] }, cut(e.classes[a], 14)), shown.map((b) => cell(a, b))))));
  }
}
