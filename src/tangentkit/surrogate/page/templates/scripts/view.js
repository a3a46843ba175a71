// The view: what is chosen at this moment. Whoever shows a part of it listens for changes.

const START = Object.freeze({
  sample: null, pin: null, kernel: 0, output: "surrogate", tab: "sample",
  wrong: false, differ: false, low: false, margin: 0.2, starred: false,
  truth: "", network: "", surrogate: "", pattern: "", sort: "number", down: false, region: null,
  compare: "truth-network", kind: "",
});
const FILTERS = ["wrong", "differ", "low", "starred", "truth", "network", "surrogate", "pattern", "region"];

class View {
  constructor() {
    Object.assign(this, START);
    this.stars = new Set();
    this.listeners = [];
  }

  /** Calls a function now and whenever one of these changes; with no names, at every change. */
  watch(names, act) {
    this.listeners.push({ names, act });
  }

  set(changes) {
    const changed = Object.keys(changes).filter((name) => !same(this[name], changes[name]));
    if (!changed.length) return;
    Object.assign(this, changes);
    this.tell(changed);
  }

  tell(changed) {
    for (const { names, act } of this.listeners) {
      if (!names.length || names.some((name) => changed.includes(name))) act(changed);
    }
  }

  /** Stars are kept as "test-12" and "train-7". */
  star(set, i) {
    const key = `${set}-${i}`;
    if (!this.stars.delete(key)) this.stars.add(key);
    this.tell(["stars"]);
  }

  isStarred(set, i) {
    return this.stars.has(`${set}-${i}`);
  }
}

function same(a, b) {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}
