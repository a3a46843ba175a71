// Pictures of samples, cut from their sheets.

class Pictures {
  constructor(source, set, form) {
    Object.assign(this, { source, set, form, sheets: new Map() });
  }

  /** A canvas that shows sample i as soon as its sheet is decoded. */
  picture(i, label) {
    const { width, height, per_row: perRow, rows } = this.form;
    const canvas = make("canvas", { class: "picture", width, height, role: label ? "img" : null, "aria-label": label, "aria-hidden": label ? null : "true" });
    const place = i % (perRow * rows);
    this.#sheet(Math.floor(i / (perRow * rows))).then((sheet) => {
      const left = (place % perRow) * width, top = Math.floor(place / perRow) * height;
      canvas.getContext("2d").drawImage(sheet, left, top, width, height, 0, 0, width, height);
      canvas.dataset.drawn = "";
    }, () => canvas.remove());
    return canvas;
  }

  #sheet(number) {
    if (!this.sheets.has(number)) {
      const decoded = this.source.piece(`${this.set}-sheet-${number}`)
        .then((bytes) => createImageBitmap(new Blob([bytes], { type: this.form.media })));
      this.sheets.set(number, decoded);
    }
    return this.sheets.get(number);
  }
}

/** The picture of a sample, or nothing where samples have none. */
function pictureOf(explanation, set, i, label = "") {
  const pictures = explanation.pictures[set];
  return pictures ? pictures.picture(i, label) : null;
}
