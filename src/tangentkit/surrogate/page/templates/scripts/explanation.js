// What is explained: samples, the network's answers, and what each kernel says.

class Explanation {
  static async open(source) {
    const tables = JSON.parse(new TextDecoder().decode(await source.piece("tables")));
    const network = await floats(source, "network");
    const logits = await Promise.all(tables.kernels.map((_, k) => floats(source, `logits-${k}`)));
    return new Explanation(source, tables, network, logits);
  }

  constructor(source, tables, network, logits) {
    Object.assign(this, tables);
    this.source = source;
    this.numOutputs = tables.outputs.length;
    this.pictures = {
      test: tables.test.sheets && new Pictures(source, "test", tables.test.sheets),
      train: tables.train.sheets && new Pictures(source, "train", tables.train.sheets),
    };
    this.network = this.#answers(network);
    // Scores that add up to no prediction have no answer of their own: lists and filters take the network's.
    this.surrogates = logits.map((numbers, k) => (this.predicts(k) ? this.#answers(numbers) : this.network));
    this.sums = logits.map((numbers) => this.#answers(numbers).logits);
    this.sizes = new Array(this.classes.length).fill(0);
    for (const label of this.train.labels) this.sizes[label]++;
    this.pieces = new Map();
    this.rows = new Map();
  }

  #answers(numbers) {
    const c = this.numOutputs;
    const logits = Array.from({ length: this.test.count }, (_, i) => numbers.subarray(i * c, (i + 1) * c));
    return { logits, classes: logits.map(classOf), margins: logits.map(marginOf) };
  }

  /** Whether the sums of a kernel's scores are the answers of a surrogate. */
  predicts(kernel) {
    return this.kernels[kernel].predicts !== false;
  }

  truth(i) {
    return this.test.labels ? this.test.labels[i] : null;
  }

  isWrong(i) {
    return this.test.labels !== null && this.network.classes[i] !== this.test.labels[i];
  }

  differs(i, kernel) {
    return this.network.classes[i] !== this.surrogates[kernel].classes[i];
  }

  nameOf(set, i) {
    return this[set].names ? this[set].names[i] : `${set === "test" ? "Test" : "Training"} sample ${count(i)}`;
  }

  textOf(set, i) {
    return this[set].texts ? this[set].texts[i] : "";
  }

  /** The number of the output that a choice stands for at a sample: of one output alone, always the first. */
  outputOf(choice, i, kernel) {
    if (this.numOutputs === 1) return 0;
    if (choice === "surrogate") return this.surrogates[kernel].classes[i];
    if (choice === "network") return this.network.classes[i];
    if (choice === "truth") return this.truth(i) ?? this.network.classes[i];
    return Number(choice);
  }

  /** A piece of bytes as numbers, read once. */
  piece(name, kind = Float32Array) {
    if (!this.pieces.has(name)) {
      this.pieces.set(name, this.source.piece(name).then((bytes) => new kind(bytes.buffer)));
    }
    return this.pieces.get(name);
  }

  /** κ(x_i, ·) and a bound of its error; null where a kernel is not there whole. */
  async row(kernel, i) {
    const form = this.kernels[kernel].form;
    if (form === "strongest") return null;
    if (form === "rows") return { values: await this.#served(kernel, i), bound: 0 };
    const n = this.test.count, m = this.train.count;
    const [codes, rounding] = await Promise.all([this.piece(`codes-${kernel}`, Int8Array), this.piece(`rounding-${kernel}`)]);
    const [middle, step, bound] = [rounding[i], rounding[n + i], rounding[2 * n + i]];
    const values = Float64Array.from(codes.subarray(i * m, (i + 1) * m), (code) => middle + step * code);
    return { values, bound };
  }

  async #served(kernel, i) {
    const place = `${kernel}/${i}`;
    if (!this.rows.has(place)) {
      if (this.rows.size >= 64) this.rows.delete(this.rows.keys().next().value);
      const row = this.source.row(kernel, i);
      row.catch(() => this.rows.delete(place));
      this.rows.set(place, row);
    }
    return this.rows.get(place);
  }
}
