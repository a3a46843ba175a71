// The map: samples by the first two principal components of the kernel. A click chooses, a drag selects a region.

class MapPanel {
  constructor(explanation, view, places) {
    Object.assign(this, { explanation, view, places, panel: byId("panel-map"), withTrain: true, drag: null });
    if (!places) {
      this.panel.append(make("p", { class: "card" }, "There is no map: the kernel between the training samples was not given."));
      return;
    }
    this.#build();
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  #build() {
    const { explanation: e } = this;
    this.canvas = make("canvas", {
      id: "map", tabindex: "0", role: "application",
      "aria-label": "Map of the samples. Arrow keys go to the nearest test sample in that direction; the list has the same samples.",
      onpointerdown: (event) => this.#down(event), onpointermove: (event) => this.#move(event), onpointerup: (event) => this.#up(event),
      onpointerleave: () => this.tip.setAttribute("hidden", ""), onkeydown: (event) => this.#key(event),
    });
    this.tip = make("div", { class: "tip", hidden: true });
    const train = make("input", { type: "checkbox", id: "map-train", onchange: (event) => { this.withTrain = event.target.checked; this.draw(); } });
    train.checked = true;
    this.off = make("button", { type: "button", id: "region-off", hidden: true, onclick: () => this.view.set({ region: null }) }, "Clear selection");
    this.panel.append(
      make("div", { class: "bar" }, make("label", {}, train, "Training samples"), this.off),
      make("div", { class: "map" }, this.canvas, this.tip),
      make("ul", { class: "legend", "aria-label": "Classes" }, e.classes.slice(0, 24).map((name, label) => make("li", {}, make("span", { class: `key b${colorOf(label)}` }), name))),
      make("p", { class: "note" }, `Kernel PCA of the kernel ${e.kernels[0].name}${e.landmarks < e.train.count ? `; its axes come from ${count(e.landmarks)} of ${counted(e.train.count, "training sample")}` : ""}. Large dots: test samples, in the color of ${e.test.labels ? "their true class; with a ring: the network is wrong" : "what the network says"}. Small dots: training samples. Click to choose, drag to select.`));
    this.range = [0, 1].map((axis) => {
      const along = this.places.filter((_, place) => place % 2 === axis).sort();
      return [along[0], along[along.length - 1]];
    });
  }

  draw() {
    if (!this.places || this.view.tab !== "map") return;
    const { canvas, explanation: e, view } = this, width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width) return;
    const density = window.devicePixelRatio || 1;
    canvas.width = width * density;
    canvas.height = height * density;
    const paint = canvas.getContext("2d");
    paint.scale(density, density);
    const colors = Array.from({ length: 12 }, (_, c) => resolved(canvas, `--c${c}`));
    const [ink, accent] = [resolved(canvas, "--ink"), resolved(canvas, "--accent")];
    this.x = scale(...this.range[0], 16, width - 16);
    this.y = scale(...this.range[1], height - 16, 16);
    const dot = (place, radius) => {
      paint.beginPath();
      paint.arc(this.x(this.places[2 * place]), this.y(this.places[2 * place + 1]), radius, 0, 2 * Math.PI);
    };
    if (this.withTrain) {
      paint.globalAlpha = 0.35;
      e.train.labels.forEach((label, j) => {
        paint.fillStyle = colors[colorOf(label)];
        dot(e.test.count + j, 1.7);
        paint.fill();
      });
    }
    const kept = new Set(this.choice ?? []);
    for (let i = 0; i < e.test.count; i++) {
      paint.globalAlpha = kept.has(i) ? 1 : 0.12;
      paint.fillStyle = colors[colorOf(e.truth(i) ?? e.network.classes[i])];
      dot(i, 4);
      paint.fill();
      if (e.isWrong(i)) {
        paint.strokeStyle = ink;
        paint.lineWidth = 1.4;
        paint.stroke();
      }
    }
    paint.globalAlpha = 1;
    for (const [i, tone] of [[view.pin, resolved(canvas, "--open")], [view.sample, accent]]) {
      if (i === null) continue;
      paint.strokeStyle = tone;
      paint.lineWidth = 3;
      dot(i, 9);
      paint.stroke();
    }
    const frame = this.drag?.frame ?? this.#frameOf(view.region);
    if (frame) {
      paint.strokeStyle = accent;
      paint.lineWidth = 1.5;
      paint.setLineDash([5, 4]);
      paint.strokeRect(frame[0], frame[1], frame[2] - frame[0], frame[3] - frame[1]);
    }
    this.off.hidden = !view.region;
  }

  #frameOf(region) {
    return region && [this.x(region[0]), this.y(region[3]), this.x(region[2]), this.y(region[1])];
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  #nearest([px, py], within) {
    let best = null, least = within * within;
    for (let i = 0; i < this.explanation.test.count; i++) {
      const size = (this.x(this.places[2 * i]) - px) ** 2 + (this.y(this.places[2 * i + 1]) - py) ** 2;
      if (size < least) [best, least] = [i, size];
    }
    return best;
  }

  #down(event) {
    this.drag = { from: this.#at(event), frame: null };
    this.canvas.setPointerCapture(event.pointerId);
  }

  #move(event) {
    const here = this.#at(event);
    if (this.drag && Math.hypot(here[0] - this.drag.from[0], here[1] - this.drag.from[1]) > 6) {
      const [a, b] = [this.drag.from, here];
      this.drag.frame = [Math.min(a[0], b[0]), Math.min(a[1], b[1]), Math.max(a[0], b[0]), Math.max(a[1], b[1])];
      this.draw();
    }
    this.#point(this.drag ? null : this.#nearest(here, 14), here);
  }

  #point(i, here) {
    const { explanation: e, tip } = this;
    tip.toggleAttribute("hidden", i === null);
    if (i === null) return;
    tip.replaceChildren(...[pictureOf(e, "test", i), make("span", {}, cut(e.nameOf("test", i), 40), make("br"), `says ${e.classes[e.network.classes[i]]}`)].filter(Boolean));
    tip.style.left = `${Math.min(here[0] + 14, this.canvas.clientWidth - 170)}px`;
    tip.style.top = `${here[1] + 14}px`;
  }

  #up(event) {
    const { drag } = this;
    this.drag = null;
    if (!drag) return;
    if (drag.frame) {
      const [left, top, right, bottom] = drag.frame;
      const back = (range, start, end) => scale(start, end, ...range);
      const x = back(this.range[0], 16, this.canvas.clientWidth - 16), y = back(this.range[1], this.canvas.clientHeight - 16, 16);
      this.view.set({ region: [x(left), y(bottom), x(right), y(top)].map((number) => Number(number.toPrecision(6))) });
    } else {
      const found = this.#nearest(this.#at(event), 20);
      if (found !== null) this.view.set({ sample: found });
    }
  }

  #key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[event.key];
    if (event.key === "Enter") this.view.set({ tab: "sample" });
    if (!way) return;
    event.preventDefault();
    event.stopPropagation();
    const from = [this.x(this.places[2 * this.view.sample]), this.y(this.places[2 * this.view.sample + 1])];
    let best = null, least = Infinity;
    for (let i = 0; i < this.explanation.test.count; i++) {
      const off = [this.x(this.places[2 * i]) - from[0], this.y(this.places[2 * i + 1]) - from[1]];
      const along = off[0] * way[0] + off[1] * way[1], aside = Math.abs(off[0] * way[1]) + Math.abs(off[1] * way[0]);
      if (along > 0.5 && along + 2 * aside < least) [best, least] = [i, along + 2 * aside];
    }
    if (best !== null) this.view.set({ sample: best });
  }
}

/** A color of the style sheet as a canvas understands it. */
function resolved(element, name) {
  const probe = make("span");
  probe.style.color = `var(${name})`;
  element.parentElement.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
