// Elements, made by name and never from HTML text: nothing of the data is parsed.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

function draw(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const byId = (id) => document.getElementById(id);

function option(value, text) {
  return make("option", { value }, text);
}

/** A table with a heading for every column; cells are texts, numbers stand to the right. */
function table(headings, rows, { caption, numeric = () => true, chosen = () => false } = {}) {
  const side = (column) => (column > 0 && numeric(column) ? { class: "number" } : {});
  return make("table", {},
    caption && make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, headings.map((text, column) => make("th", { scope: "col", ...side(column) }, text)))),
    make("tbody", {}, rows.map((cells, row) => make("tr", { class: chosen(row) ? "chosen" : null }, cells.map((cell, column) =>
      column === 0 ? make("th", { scope: "row" }, cell) : make("td", side(column), cell))))));
}
