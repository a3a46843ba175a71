// The page put together: controls tell the view, and the view tells the panels.

const PANELS = ["sample", "confusion", "map", "flags", "about"];
const THEMES = { auto: "Auto", light: "Light", dark: "Dark" };

async function start() {
  const served = document.documentElement.dataset.source === "server";
  const explanation = await Explanation.open(served ? new ServerSource() : new FileSource());
  const places = explanation.landmarks === null ? null : await explanation.piece("positions");
  const view = new View();
  const list = new List(explanation, view);
  const parts = { sample: new SamplePanel(explanation, view), confusion: new ConfusionPanel(explanation, view), map: new MapPanel(explanation, view, places), flags: new FlagsPanel(explanation, view) };
  fillControls(explanation);
  fillAbout(explanation);
  fillSummary(explanation, view);
  for (const key of recallStars(explanation)) if (isStar(explanation, key)) view.stars.add(key);
  restore(explanation, view);
  wireControls(explanation, view);
  wireTabs(view);
  wireTools(explanation, view);
  wireKeys(view, list);

  let choice = [];
  const choose = () => {
    choice = choiceOf(explanation, view, places);
    parts.map.choice = choice;
    list.show(choice);
    byId("found").textContent = choice.length === explanation.test.count ? counted(choice.length, "sample") : `${count(choice.length)} of ${counted(explanation.test.count, "sample")}`;
    byId("clear").hidden = !FILTERS.some((name) => !same(view[name], START[name]));
    if (view.sample === null || (choice.length && !choice.includes(view.sample))) view.set({ sample: choice[0] ?? 0 });
    list.reveal(); // the chosen sample may be anywhere in another choice, or in another order
    parts.map.draw();
  };
  view.watch(["tab"], () => showTab(view)); // first: what is hidden has no width to be drawn for
  view.watch([...FILTERS, "margin", "sort", "down", "kernel"], choose);
  view.watch(["stars"], () => {
    keepStars(explanation, view.stars);
    for (const button of document.querySelectorAll("[data-star]")) paintStar(button, view.stars.has(button.dataset.star));
    if (view.starred) choose();
    else list.redraw();
  });
  view.watch(["sample"], () => {
    list.mark();
    list.reveal();
    byId("said").textContent = spoken(explanation, view);
  });
  view.watch(["sample", "pin", "kernel", "output", "tab"], (changed) => {
    if (changed.includes("sample")) parts.sample.shown = STEP;
    if (view.tab === "sample") parts.sample.show();
    parts.map.draw();
  });
  view.watch(["tab", "compare", "kernel", "truth", "network", "surrogate"], () => parts.confusion.show());
  view.watch(["tab", "kind"], () => parts.flags.show());
  view.watch([], () => {
    showControls(explanation, view);
    history.replaceState(null, "", linkOf(view));
  });
  window.addEventListener("hashchange", () => restore(explanation, view));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => parts.map.draw());
  byId("theme").addEventListener("click", () => {
    turnTheme();
    parts.map.draw();
  });
  choose();
  showTab(view);
  showControls(explanation, view);
  list.reveal();
  await parts.sample.show();
  parts.confusion.show();
  parts.flags.show();
  parts.map.draw();
  byId("app").setAttribute("aria-busy", "false");
  document.documentElement.dataset.ready = performance.now().toFixed(0);
}

function restore(explanation, view) {
  const { changes, stars } = viewOf(location.hash, explanation);
  if (changes.sample === null) delete changes.sample;
  const added = stars.filter((key) => !view.stars.has(key));
  for (const key of added) view.stars.add(key);
  view.set(changes);
  if (added.length) view.tell(["stars"]);
}

function spoken(explanation, view) {
  const i = view.sample, said = explanation.classes[explanation.network.classes[i]];
  return `${explanation.nameOf("test", i)}: the network says ${said}${explanation.isWrong(i) ? ", which is wrong" : ""}`;
}

function fillControls(explanation) {
  byId("kernel").append(...explanation.kernels.map(({ name }, k) => option(k, name)));
  const outputs = explanation.outputs.map((name, c) => option(c, name));
  const special = [option("surrogate", "surrogate’s answer"), option("network", "network’s answer"), explanation.test.labels && option("truth", "true class")];
  byId("output").append(...(explanation.numOutputs === 1 ? outputs : [...special.filter(Boolean), ...outputs]));
  for (const id of ["truth", "network", "surrogate"]) byId(id).append(option("", "any"), ...explanation.classes.map((name, label) => option(label, name)));
  byId("sort").append(...Object.entries(ORDERS).filter(([, order]) => explanation.test.labels || !order.needsTruth).map(([value, { name }]) => option(value, name)));
  for (const id of ["wrong", "truth"]) byId(id).disabled = !explanation.test.labels;
}

function fillSummary(explanation, view) {
  byId("summary").hidden = !explanation.summary;
  byId("summary-text").textContent = explanation.summary ?? "";
  byId("whole-table").addEventListener("click", () => view.set({ tab: "about" }));
}

function fillAbout(explanation) {
  const kinds = { rounded: "whole, in one byte a value", strongest: "by its strongest samples and class means", rows: "whole, as stored" };
  const kernels = explanation.kernels.map(({ name, form }) => `${name} (${kinds[form]})`).join("; ");
  byId("panel-about").append(make("section", { class: "card" },
    make("h2", {}, "What this page shows"),
    make("p", {}, "A kernel surrogate stands for the network: its logit for an output c is a sum over the training samples. The term of one training sample is its score, A(x, t) = W κ(x, t) + b / m, with the kernel κ between the two samples, the weight W that the surrogate has given to t, and its share of the offset b. Positive scores speak for the output, negative ones against it. All scores of a sample sum to the surrogate’s logit."),
    make("p", {}, "The surrogate is not the network: where the two disagree, scores explain the surrogate."),
    make("dl", { class: "facts" },
      make("dt", {}, "Test samples"), make("dd", {}, count(explanation.test.count)),
      make("dt", {}, "Training samples"), make("dd", {}, count(explanation.train.count)),
      make("dt", {}, "Classes"), make("dd", {}, explanation.classes.join(", ")),
      make("dt", {}, "Kernels"), make("dd", {}, kernels)),
    explanation.notes.map((note) => make(note.includes("\n") ? "pre" : "p", { class: "note" }, note))));
}

const CHECKS = ["wrong", "differ", "low", "starred"];
const CHOICES = ["kernel", "output", "truth", "network", "surrogate", "sort"];

function wireControls(explanation, view) {
  for (const id of CHECKS) byId(id).addEventListener("change", (event) => view.set({ [id]: event.target.checked }));
  for (const id of CHOICES) byId(id).addEventListener("change", (event) => view.set({ [id]: id === "kernel" ? Number(event.target.value) : event.target.value }));
  byId("margin").addEventListener("input", (event) => view.set({ margin: Number(event.target.value) }));
  byId("pattern").addEventListener("input", (event) => {
    const trouble = troubleOf(event.target.value);
    byId("pattern-trouble").hidden = !trouble;
    byId("pattern-trouble").textContent = trouble && `Not a regular expression: ${trouble}`;
    if (!trouble) view.set({ pattern: event.target.value });
  });
  byId("down").addEventListener("click", () => view.set({ down: !view.down }));
  byId("clear").addEventListener("click", () => view.set(Object.fromEntries(FILTERS.map((name) => [name, START[name]]))));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
}

/** Controls say what the view is, whoever changed it. */
function showControls(explanation, view) {
  for (const id of CHECKS) byId(id).checked = view[id];
  for (const id of CHOICES) byId(id).value = String(view[id]);
  if (explanation.numOutputs === 1) byId("output").value = "0";
  if (!troubleOf(byId("pattern").value)) byId("pattern").value = view.pattern;
  byId("margin").value = view.margin;
  byId("margin-value").textContent = view.margin.toFixed(2);
  byId("margin-row").hidden = !view.low;
  byId("down").textContent = view.down ? "↓ descending" : "↑ ascending";
  byId("down").setAttribute("aria-label", `${view.down ? "Descending" : "Ascending"} order. Turn it round`);
  byId("star-count").textContent = count(view.stars.size);
  byId("save").disabled = view.stars.size === 0;
  byId("save").setAttribute("aria-label", `Save ${counted(view.stars.size, "starred sample")} as CSV`);
}

function wireTabs(view) {
  const tabs = [...document.querySelectorAll("#tabs [role=tab]")];
  for (const tab of tabs) tab.addEventListener("click", () => view.set({ tab: tab.id.slice(4) }));
  byId("tabs").addEventListener("keydown", (event) => {
    const seen = tabs.filter((tab) => tab.checkVisibility());
    const here = seen.indexOf(document.activeElement);
    const goal = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: seen.length - 1 }[event.key];
    if (here < 0 || goal === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const tab = seen[(goal + seen.length) % seen.length];
    tab.focus();
    tab.click();
  });
  byId("skip").addEventListener("click", () => {
    view.set({ tab: "sample" });
    byId("main").focus();
  });
}

function showTab(view) {
  // Where the list is always in sight, its tab is that of the sample.
  const shown = view.tab === "list" && !byId("tab-list").checkVisibility() ? "sample" : view.tab;
  byId("app").dataset.tab = shown;
  for (const tab of document.querySelectorAll("#tabs [role=tab]")) {
    const isChosen = tab.id === `tab-${shown}`;
    tab.setAttribute("aria-selected", String(isChosen));
    tab.tabIndex = isChosen ? 0 : -1;
  }
  for (const name of PANELS) byId(`panel-${name}`).hidden = name !== shown;
}

function wireTools(explanation, view) {
  byId("save").addEventListener("click", () => saveText("stars.csv", starsAsCsv(explanation, view)));
  byId("help").addEventListener("click", () => byId("keys").showModal());
  byId("share").addEventListener("click", () => {
    byId("link-text").value = location.href;
    byId("copied").textContent = "";
    byId("link").showModal();
    byId("link-text").select();
  });
  byId("copy").addEventListener("click", async () => {
    byId("link-text").select();
    try {
      await navigator.clipboard.writeText(byId("link-text").value);
      byId("copied").textContent = "Copied.";
    } catch {
      byId("copied").textContent = "Press Ctrl+C: the browser lets no page of a file copy by itself.";
    }
  });
}

function wireKeys(view, list) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
    const next = () => list.move(1), previous = () => list.move(-1);
    // A table or text that has the focus is scrolled by arrows, and Shift selects by them.
    const arrows = event.shiftKey || event.target.matches(".scroll, .text") ? {} : { ArrowDown: next, ArrowUp: previous };
    const acts = {
      j: next, k: previous, ...arrows,
      s: () => view.star("test", view.sample),
      p: () => view.set({ pin: view.pin === view.sample ? null : view.sample }),
      "/": () => byId("pattern").focus(),
      "?": () => byId("keys").showModal(),
    };
    PANELS.forEach((tab, place) => (acts[String(place + 1)] = () => view.set({ tab })));
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
}

function turnTheme() {
  const names = Object.keys(THEMES), root = document.documentElement;
  const next = names[(names.indexOf(root.dataset.theme ?? "auto") + 1) % names.length];
  root.dataset.theme = next;
  byId("theme-name").textContent = THEMES[next];
  byId("theme").setAttribute("aria-label", `Colors: ${THEMES[next]}`);
}

start().catch((error) => {
  byId("trouble").hidden = false;
  byId("trouble").textContent = typeof DecompressionStream === "undefined"
    ? "This browser is too old for the page: it needs one of 2023 or later."
    : `The page cannot be shown: ${error.message}`;
  byId("app").hidden = true;
});
