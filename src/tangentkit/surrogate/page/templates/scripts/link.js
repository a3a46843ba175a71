// The link: the view in the part of the address after #, and back. Whoever wrote it, what does not fit is left out.

function linkOf(view) {
  const words = new URLSearchParams();
  for (const [name, start] of Object.entries(START)) {
    const value = view[name];
    if (!same(value, start)) words.set(name, Array.isArray(value) ? value.join(" ") : String(value));
  }
  if (view.stars.size) words.set("stars", [...view.stars].join(" "));
  return `#${words}`;
}

function viewOf(fragment, explanation) {
  const words = new URLSearchParams(fragment.replace(/^#/, "")), changes = { ...START };
  const below = (limit) => (text) => (/^\d{1,9}$/.test(text) && Number(text) < limit ? Number(text) : undefined);
  const among = (...names) => (text) => (names.includes(text) ? text : undefined);
  const yes = (text) => (text === "true" ? true : undefined);
  const label = (text) => (below(explanation.classes.length)(text) === undefined ? undefined : text);
  const readers = {
    sample: below(explanation.test.count), pin: below(explanation.test.count), kernel: below(explanation.kernels.length),
    output: (text) => among("surrogate", "network", "truth")(text) ?? (below(explanation.numOutputs)(text) === undefined ? undefined : text),
    tab: among("list", "sample", "confusion", "map", "flags", "about"), wrong: yes, differ: yes, low: yes, starred: yes, down: yes,
    margin: (text) => (Number(text) > 0 && Number(text) <= 1 ? Number(text) : undefined),
    truth: label, network: label, surrogate: label, sort: among(...Object.keys(ORDERS)), compare: among(...Object.keys(PAIRS)),
    pattern: (text) => (text.length <= 200 && !troubleOf(text) ? text : undefined),
    region: (text) => (text.split(" ").length === 4 && text.split(" ").every((part) => Number.isFinite(Number(part))) ? text.split(" ").map(Number) : undefined),
    kind: (text) => text,
  };
  for (const [name, read] of Object.entries(readers)) {
    const value = words.has(name) ? read(words.get(name)) : undefined;
    if (value !== undefined) changes[name] = value;
  }
  const stars = (words.get("stars") ?? "").split(" ").filter((key) => isStar(explanation, key));
  return { changes, stars };
}
