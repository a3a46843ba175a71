// One sample: who it is, what network and surrogate say, and the training samples for and against.

const STEP = 10;

class SamplePanel {
  constructor(explanation, view) {
    Object.assign(this, { explanation, view, panel: byId("panel-sample"), turn: 0, shown: STEP });
    let width = 0;
    new ResizeObserver(() => {
      // Charts are drawn for a width; other changes of size are none of theirs.
      if (this.panel.clientWidth && this.panel.clientWidth !== width) {
        width = this.panel.clientWidth;
        this.show();
      }
    }).observe(this.panel);
  }

  /** Draws the chosen sample, and the pinned one beside it. The last call wins, whichever is ready first. */
  async show() {
    const turn = ++this.turn, { view, explanation } = this;
    if (view.sample === null || !this.panel.clientWidth) return;
    const started = performance.now();
    const samples = [view.pin !== null && view.pin !== view.sample ? view.pin : null, view.sample].filter((i) => i !== null);
    const accounts = await Promise.all(samples.map((i) => accountOf(explanation, view.kernel, i, explanation.outputOf(view.output, i, view.kernel))));
    if (turn !== this.turn) return;
    const columns = accounts.map((account) => this.#column(account, accounts.length, account.sample === view.pin && accounts.length > 1));
    this.panel.replaceChildren(...[accounts.length > 1 && this.#shared(accounts), make("div", { class: "columns" }, columns)].filter(Boolean));
    this.panel.dataset.sample = view.sample;
    this.panel.dataset.took = (performance.now() - started).toFixed(1);
  }

  /** Of one sample alone, the two charts stand beside each other where there is room. */
  #column(account, columns, isPin) {
    const room = this.panel.clientWidth, beside = columns === 1 && room >= 800;
    const side = room < 720 ? room : (room - 16 * (columns - 1)) / columns;
    const width = Math.max(240, (beside ? (side - 13) / 2 : side) - 33);
    return make("div", { class: `column${isPin ? " pinned" : ""}`, "data-sample": account.sample },
      this.#who(account, isPin),
      this.#voices(account),
      make("div", { class: `pair${beside ? " beside" : ""}` }, barsCard(this.explanation, this.view, account, width), boxesCard(this.explanation, account, width)),
      this.#logits(account));
  }

  #who(account, isPin) {
    const { explanation: e, view } = this, i = account.sample;
    const network = e.network.classes[i], surrogate = e.surrogates[account.kernel].classes[i], truth = e.truth(i);
    const probability = (answers, label) => percent(softmax(answers.logits[i])[label]);
    const text = e.textOf("test", i), name = e.nameOf("test", i);
    const pinned = view.pin === i;
    return make("section", { class: "card who", "aria-label": isPin ? "Pinned sample" : "Chosen sample" },
      pictureOf(e, "test", i, `Picture of ${name}`),
      make("div", { class: "body" },
        make("div", { class: "line" },
          make("h2", {}, name, pinned && make("span", { class: "badge" }, "pinned")),
          make("div", { class: "acts" },
            starButton(view, "test", i, name),
            make("button", { type: "button", class: "pin", "aria-pressed": String(pinned), title: "Pin, to compare others with it (p)", onclick: () => view.set({ pin: pinned ? null : i }) }, pinned ? "Unpin" : "Pin"))),
        text && make("p", { class: "text", tabindex: "0" }, text),
        make("dl", { class: "verdicts" },
          truth !== null && [make("dt", {}, "Truth"), make("dd", {}, e.classes[truth])],
          make("dt", {}, "Network"), make("dd", {}, e.classes[network], make("small", {}, ` ${probability(e.network, network)}, margin ${e.network.margins[i].toFixed(2)} `), e.isWrong(i) && make("span", { class: "mark no" }, "wrong"), truth !== null && !e.isWrong(i) && make("span", { class: "mark yes" }, "right")),
          !e.predicts(account.kernel) && [make("dt", {}, "Surrogate"), make("dd", {}, make("small", {}, "none: these scores add up to no prediction"))],
          e.predicts(account.kernel) && [make("dt", {}, "Surrogate"), make("dd", {}, e.classes[surrogate], make("small", {}, ` ${probability(e.surrogates[account.kernel], surrogate)} `), surrogate === network ? make("span", { class: "mark yes" }, "agrees") : make("span", { class: "mark open" }, "disagrees"))])));
  }

  #voices(account) {
    const { explanation: e } = this, one = e.numOutputs === 1;
    const title = one ? `Training samples for ${e.classes[1]} and for ${e.classes[0]}` : `Training samples for and against ${e.outputs[account.output]}`;
    const heading = { for: one ? `For ${e.classes[1]}` : "For", against: one ? `For ${e.classes[0]}` : "Against" };
    const sides = ["for", "against"].map((side) => ({ side, voices: account.strongest(side, this.shown) }));
    const largest = Math.max(1e-300, ...sides.flatMap(({ voices }) => voices.map(({ score }) => Math.abs(score))));
    const more = this.shown < account.most;
    return make("section", { class: "card voices-card" },
      make("h2", {}, title),
      make("div", { class: "sides" }, sides.map(({ side, voices }) => make("div", { class: `side ${side}` },
        make("h3", {}, heading[side]),
        voices.length ? make("ol", { class: `voices${e.pictures.train ? " tiles" : ""}` }, voices.map((voice) => this.#voice(voice, largest))) : make("p", { class: "note" }, account.means[account.output] ? "No score has this sign." : "Of this kernel the file holds the outputs of the largest logits only, and this is none of them.")))),
      more && make("button", { type: "button", class: "more", onclick: () => { this.shown += STEP; this.show(); } }, `Show ${STEP} more`),
      account.bound > 0 && make("p", { class: "note" }, `This file holds the kernel in one byte a value: no score shown here is off by more than ±${digits(Math.max(...sides.flatMap(({ voices }) => voices.map(({ bound }) => bound))), 2)}.`));
  }

  #voice({ j, score, bound }, largest) {
    const { explanation: e, view } = this, label = e.classes[e.train.labels[j]], name = e.nameOf("train", j);
    const picture = pictureOf(e, "train", j, `Picture of ${name}`);
    const words = e.textOf("train", j) || (picture && !e.train.names ? "" : name);
    const exact = bound > 0 ? `${name}: ${signed(score)} ± ${digits(bound, 2)}` : `${name}: ${signed(score)}`;
    return make("li", { class: "voice", "data-train": j, title: exact },
      picture ?? make("span"),
      make("span", { class: "words" }, make("span", { class: `key b${colorOf(e.train.labels[j])}`, "aria-hidden": "true" }), label, words && make("small", {}, words)),
      make("span", { class: "score" }, signed(score)),
      starButton(view, "train", j, name),
      make("meter", { class: "strength", min: 0, max: largest, value: Math.abs(score), "aria-label": `Size of the score of ${name}` }));
  }

  #logits(account) {
    const { explanation: e } = this, i = account.sample;
    if (!e.predicts(account.kernel)) return this.#sums(account);
    const network = e.network.logits[i], surrogate = e.surrogates[account.kernel].logits[i];
    const [p, q] = [softmax(network), softmax(surrogate)];
    const shown = shownClasses(e.outputs.map((_, c) => (c === account.output ? Infinity : Math.max(p.at(c), q.at(c)))));
    const headings = ["output", "network", "softmax", "surrogate", "softmax", ...(account.sums ? ["sum of scores", "off by", "at most"] : [])];
    const rows = shown.map((c) => {
      const at = e.numOutputs === 1 ? 1 : c;
      const sum = account.sums ? [digits(account.sums[c], 4), digits(account.sums[c] - surrogate[c], 2), digits(account.bounds[c], 2)] : [];
      return [e.outputs[c], digits(network[c], 4), percent(p[at]), digits(surrogate[c], 4), percent(q[at]), ...sum];
    });
    return make("section", { class: "card logits" },
      make("h2", {}, "Logits"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Logits" }, table(headings, rows, { caption: "Logits of network and surrogate", chosen: (row) => shown[row] === account.output })),
      make("p", { class: "note" }, account.sums
        ? "The surrogate’s logits are exact. The scores of all training samples sum to them, up to the rounding of the kernel in this file; the last column is the most that it could do."
        : "The surrogate’s logits are exact; of its scores only the strongest are in this file."));
  }

  /** Of scores that add up to no prediction: the network's logits, and the sums without a claim. */
  #sums(account) {
    const { explanation: e } = this, i = account.sample, network = e.network.logits[i], p = softmax(network);
    const shown = shownClasses(e.outputs.map((_, c) => (c === account.output ? Infinity : p.at(c))));
    const rows = shown.map((c) => [e.outputs[c], digits(network[c], 4), percent(p[e.numOutputs === 1 ? 1 : c]), digits(e.sums[account.kernel][i][c], 4)]);
    return make("section", { class: "card logits" },
      make("h2", {}, "Logits"),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Logits" }, table(["output", "network", "softmax", "sum of scores"], rows, { caption: "Logits of the network, and sums of scores", chosen: (row) => shown[row] === account.output })),
      make("p", { class: "note" }, `The scores of ${e.kernels[account.kernel].name} tell how training samples pull at the network’s logits. They add up to no logit of a surrogate, so that there is no answer of one to compare.`));
  }

  #shared(accounts) {
    const both = ["for", "against"].map((side) => {
      const [a, b] = accounts.map((account) => new Set(account.strongest(side, STEP).map(({ j }) => j)));
      return `${[...a].filter((j) => b.has(j)).length} of the ${Math.max(a.size, b.size)} strongest ${side}`;
    });
    return make("p", { class: "shared note", role: "note" }, `Both samples share ${both.join(", and ")}.`);
  }
}

function starButton(view, set, i, name) {
  const button = make("button", { type: "button", class: "star", "data-star": `${set}-${i}`, "aria-label": `Star ${name}`, title: "Star", onclick: () => view.star(set, i) });
  paintStar(button, view.isStarred(set, i));
  return button;
}

function paintStar(button, isStarred) {
  button.setAttribute("aria-pressed", String(isStarred));
  button.textContent = isStarred ? "★" : "☆";
}
