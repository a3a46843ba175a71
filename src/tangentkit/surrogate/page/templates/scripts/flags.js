// Audit flags: training samples that are doubted, why, and the samples that show it.

class FlagsPanel {
  constructor(explanation, view) {
    Object.assign(this, { explanation, view, panel: byId("panel-flags"), shown: 40 });
    byId("tab-flags").textContent = explanation.flags.length ? `Flags (${count(explanation.flags.length)})` : "Flags";
  }

  show() {
    const { explanation: e, view } = this;
    if (view.tab !== "flags") return;
    if (!e.flags.length) {
      this.panel.replaceChildren(make("p", { class: "card" }, "No training sample is flagged. Flags come from tk.audit(model, data)."));
      return;
    }
    const kinds = [...new Set(e.flags.map(({ kind }) => kind))].sort();
    const choose = make("select", { id: "kind", onchange: (event) => view.set({ kind: event.target.value }) },
      option("", "all"), kinds.map((kind) => option(kind, kind)));
    choose.value = kinds.includes(view.kind) ? view.kind : "";
    const flags = e.flags.filter(({ kind }) => !choose.value || kind === choose.value);
    this.panel.replaceChildren(...[
      make("div", { class: "bar" }, make("label", {}, "Kind ", choose), make("span", { class: "soft", role: "status" }, counted(flags.length, "flag"))),
      make("ol", { class: "flags" }, flags.slice(0, this.shown).map((flag) => this.#flag(flag))),
      flags.length > this.shown && make("button", { type: "button", class: "more", onclick: () => { this.shown += 40; this.show(); } }, "Show 40 more"),
    ].filter(Boolean));
  }

  #flag({ sample, kind, score, reason, evidence }) {
    const { explanation: e, view } = this, name = e.nameOf("train", sample);
    return make("li", { class: "card flagged", "data-flag": sample },
      pictureOf(e, "train", sample, `Picture of ${name}`) ?? make("span"),
      make("div", {},
        make("strong", {}, name), " ", make("span", { class: "mark open" }, kind), make("span", { class: "soft" }, ` labeled ${e.classes[e.train.labels[sample]]} · score ${digits(score)}`),
        e.train.texts && make("p", { class: "text" }, e.train.texts[sample]),
        make("p", {}, reason),
        evidence.length > 0 && make("ul", { class: "evidence", "aria-label": "Evidence" }, evidence.slice(0, 12).map((j) =>
          make("li", {}, pictureOf(e, "train", j, `Picture of ${e.nameOf("train", j)}`), cut(e.textOf("train", j) || e.nameOf("train", j), 60), make("span", {}, e.classes[e.train.labels[j]]))))),
      starButton(view, "train", sample, name));
  }
}
