"""`tangentkit serve`: the page of a folder, for a browser on this machine."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from tangentkit.cli.console import say


def serve(
    run: Path, *, port: int = 0, open_browser: Annotated[bool, Parameter(name="--open", negative="")] = False
) -> None:
    """Show the page of a folder that is too large for one file, until Ctrl-C.

    It listens at 127.0.0.1 only, at an address with a random token, and only reads.

    Args:
        run: the folder that `write_folder` wrote.
        port: to listen at; default: a free one.
        open_browser: open the page in the browser.
    """
    from tangentkit.surrogate.page import PageServer, open_folder

    with PageServer(open_folder(run), port=port) as server:
        print(server.url, flush=True)
        say("Ctrl-C ends it; whoever has the address can read the page, on this machine only")
        if open_browser:
            import webbrowser

            webbrowser.open(server.url)
        server.serve_forever()
