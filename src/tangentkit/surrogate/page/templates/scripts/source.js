// Where pieces come from: this very file, or the server that it came from.

class FileSource {
  /** The bytes of a piece; it is read once, and its text given back to the browser. */
  async piece(name) {
    const element = byId(`piece-${name}`);
    if (!element) throw new Error(`this page has no piece ${name}: the file is not whole`);
    const bytes = fromBase64(element.textContent);
    element.remove();
    return unzipped(bytes);
  }
}

class ServerSource {
  async piece(name) {
    return unzipped(await this.#read(`piece/${name}`));
  }

  /** A row of a kernel as the store has it. */
  async row(kernel, sample) {
    return new Float32Array((await this.#read(`row/${kernel}/${sample}`)).buffer);
  }

  async #read(place) {
    const answer = await fetch(place);
    if (!answer.ok) throw new Error(`${place}: ${answer.status} ${await answer.text()}`);
    return new Uint8Array(await answer.arrayBuffer());
  }
}

async function floats(source, name) {
  return new Float32Array((await source.piece(name)).buffer);
}
