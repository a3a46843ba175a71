// The list of test samples: only the rows in sight exist, so that a hundred thousand scroll like ten.

const ROW = 60;

class List {
  constructor(explanation, view) {
    Object.assign(this, { explanation, view, samples: [], rows: new Map() });
    this.box = byId("list");
    this.space = byId("space");
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.#key(event));
    this.box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) this.view.set({ sample: Number(row.dataset.sample), tab: "sample" });
    });
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  show(samples) {
    this.samples = samples;
    this.space.style.height = `${samples.length * ROW}px`;
    this.redraw();
  }

  redraw() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 4);
    const last = Math.min(this.samples.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + 4);
    for (const [place, row] of this.rows) {
      if (place >= first && place < last) continue;
      row.remove();
      this.rows.delete(place);
    }
    for (let place = first; place < last; place++) {
      if (!this.rows.has(place)) this.rows.set(place, this.#row(place));
    }
    this.mark();
  }

  /** Marks the chosen sample, and says to screen readers which it is. */
  mark() {
    for (const row of this.rows.values()) row.setAttribute("aria-selected", String(Number(row.dataset.sample) === this.view.sample));
    const there = this.rows.get(this.samples.indexOf(this.view.sample));
    if (there) this.box.setAttribute("aria-activedescendant", there.id);
    else this.box.removeAttribute("aria-activedescendant");
  }

  reveal() {
    const place = this.samples.indexOf(this.view.sample);
    if (place < 0 || !this.box.clientHeight) return;
    const top = place * ROW, bottom = top + ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
    this.draw();
  }

  /** Chooses a sample so many places further. */
  move(by) {
    if (!this.samples.length) return;
    const here = this.samples.indexOf(this.view.sample);
    const place = here < 0 ? 0 : Math.min(Math.max(here + by, 0), this.samples.length - 1);
    this.view.set({ sample: this.samples[place] });
    this.reveal();
  }

  #key(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") this.view.set({ tab: "sample" });
    else if (event.key in moves) this.move(moves[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #row(place) {
    const i = this.samples[place], e = this.explanation, kernel = this.view.kernel;
    const truth = e.truth(i), said = e.classes[e.network.classes[i]];
    const name = e.test.names ? e.test.names[i] : e.textOf("test", i) || `Sample ${count(i)}`;
    const row = make("div", { class: "row", role: "option", id: `row-${i}`, "data-sample": i, "aria-setsize": this.samples.length, "aria-posinset": place + 1 },
      pictureOf(e, "test", i),
      make("span", { class: "what" },
        make("span", {}, name),
        make("span", { class: "said" }, !e.isWrong(i) ? said : `${e.classes[truth]} → ${said}`)),
      make("span", { class: "marks" },
        make("span", { class: "margin", title: "Margin of the network" }, e.network.margins[i].toFixed(2)),
        this.view.isStarred("test", i) && make("span", { class: "mark star", role: "img", "aria-label": "starred" }, "★"),
        e.isWrong(i) && make("span", { class: "mark no", title: "The network is wrong" }, "wrong"),
        e.differs(i, kernel) && make("span", { class: "mark open", title: `The surrogate says ${e.classes[e.surrogates[kernel].classes[i]]}` }, "≠", make("span", { class: "unseen" }, " surrogate disagrees"))));
    row.style.top = `${place * ROW}px`;
    this.space.append(row);
    return row;
  }
}
