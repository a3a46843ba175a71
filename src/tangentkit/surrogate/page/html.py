"""The page as HTML: style and script in place, all pieces in base64, and a policy that forbids the network."""

import base64
import hashlib
from collections.abc import Iterator
from importlib.resources import files
from os import PathLike
from pathlib import Path

from tangentkit.core.errors import BudgetError, briefly
from tangentkit.core.files.safe import as_path, written_whole
from tangentkit.core.memory import format_bytes
from tangentkit.core.text import visible
from tangentkit.report.drawing import DARK, LIGHT
from tangentkit.surrogate.page.contents import Contents, contents
from tangentkit.surrogate.page.explanation import Explanation

MOST = 256 * 10**6
"""Bytes of the largest page that is written as one file: browsers hold no text of more than twice as much."""
SCRIPTS = (
    "make", "numbers", "bytes", "source", "explanation", "account", "view", "pictures", "charts", "bars", "boxes",
    "choice", "list", "sample", "confusion", "map", "flags", "stars", "link", "app",
)  # fmt: skip
"""The script, one idea a file, in the order in which they stand in the page."""
PIECES = "<!-- pieces -->"


@briefly
def write_page(explanation: Explanation, path: str | PathLike[str]) -> Path:
    """Writes the page of an explanation: one file that opens without network, whole or not at all.

    Args:
        explanation: what is to be shown.
        path: of the file.

    Returns:
        The path.

    Raises:
        InputError: pictures cannot be read, or are none.
        NumericalError: a kernel value is not finite.
        BudgetError: the page would be too large for a browser.
        DataError: the file cannot be written.
    """
    path = as_path(path)
    _check_size(explanation.num_test * explanation.num_train)
    made = contents(explanation, served=False)
    _check_size(made.nbytes)
    with written_whole(path, durable=False) as file:
        for part in page_parts(explanation.title, made):
            file.write(part)
    return path


def page_parts(title: str, made: Contents | None) -> Iterator[bytes]:
    """The HTML of the page, in parts; without contents the page asks the server that it came from."""
    before, _, after = _document(title, served=made is None).partition(PIECES)
    yield before.encode()
    for name, piece in (made.pieces if made else {}).items():
        # A type that is no script: the browser keeps the text and runs nothing.
        yield f'<script type="application/octet-stream" id="piece-{name}">'.encode()
        yield base64.b64encode(piece)
        yield b"</script>\n"
    yield after.encode()


def _document(title: str, *, served: bool) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("tangentkit.surrogate.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
    )
    # Names of colors come from our own palettes, and a style sheet is no HTML.
    style = environment.get_template("style.css").render(light=LIGHT, dark=DARK)
    script = _script()
    return environment.get_template("page.html").render(
        title=visible(title),
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script, served=served),
        source="server" if served else "file",
    )


def _script() -> str:
    folder = files("tangentkit.surrogate.page") / "templates" / "scripts"
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "\n})();\n"


def _policy(style: str, script: str, *, served: bool) -> str:
    """The page runs its own script and style and no other, and fetches nothing but from its own server."""
    rules = {
        "default-src": "'none'",
        "script-src": _digest(script),
        "style-src": _digest(style),
        "img-src": "data:",
        "connect-src": "'self'" if served else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _check_size(nbytes: int) -> None:
    if nbytes * 4 // 3 > MOST:
        raise BudgetError(
            "the page is too large for one file",
            expected=f"at most {format_bytes(MOST)}",
            got=f"about {format_bytes(nbytes * 4 / 3)}",
            hint="fewer test samples, or write_folder(explanation, folder) and `tangentkit serve folder`",
        )
