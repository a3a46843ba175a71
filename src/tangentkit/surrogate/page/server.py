"""A server for one page: on this machine only, behind a random token, for reading only.

No path of a request is ever a path of a file: what is asked for is a name in a table, or two numbers.
"""

import hmac
import re
import secrets
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tangentkit.core.errors import DataError, TangentkitError
from tangentkit.core.text import visible
from tangentkit.surrogate.page.folder import Folder
from tangentkit.surrogate.page.html import page_parts

HERE = "127.0.0.1"
LONGEST = 256
"""Characters of the longest path that is looked at."""
PLACE = re.compile(r"/([A-Za-z0-9_-]{1,64})/(?:piece/([a-z0-9-]{1,40})|row/(\d{1,3})/(\d{1,9}))?", re.ASCII)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",
}
PATIENCE = 10.0
"""Seconds that a request may take to arrive."""


class PageServer(ThreadingHTTPServer):
    """Serves the page of a folder at an address that cannot be guessed, until it is closed.

    Args:
        folder: of the page.
        port: to listen at; 0 takes a free one.

    Raises:
        DataError: the port is taken.
    """

    daemon_threads = True

    def __init__(self, folder: Folder, *, port: int = 0):
        self.folder, self.token = folder, secrets.token_urlsafe(32)
        self.html = b"".join(page_parts(folder.title, None))
        try:
            super().__init__((HERE, port), PageRequest)
        except (OSError, OverflowError) as error:
            got = getattr(error, "strerror", None) or error
            raise DataError(f"cannot listen at port {port}", got=got, hint="another port, or none") from error
        port = self.server_address[1]
        self.hosts = {f"{HERE}:{port}", f"localhost:{port}"}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HERE}:{self.server_address[1]}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing: a browser that goes away is no error of ours."""


class PageRequest(BaseHTTPRequestHandler):
    """Answers one request of a browser."""

    server: PageServer
    server_version, sys_version = "tangentkit", ""
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE

    def do_GET(self) -> None:
        """Answers with what is asked for."""
        code, kind, content = self._answer()
        self._send(code, kind, content)

    def do_HEAD(self) -> None:
        """Answers with headers alone."""
        code, kind, content = self._answer()
        self._send(code, kind, content, body=False)

    def _answer(self) -> tuple[int, str, bytes]:
        if self.headers.get("Host") not in self.server.hosts:
            # Another name for this machine may be one that a stranger's page has given it.
            return _refusal(403, "not this host")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return _refusal(403, "not from other pages")
        match = PLACE.fullmatch(self.path) if len(self.path) <= LONGEST else None
        if match is None or not hmac.compare_digest(match[1], self.server.token):
            return _refusal(404, "there is nothing here")
        try:
            return self._found(match[2], match[3], match[4])
        except TangentkitError as error:
            return _refusal(500, str(error))

    def _found(self, piece: str | None, kernel: str | None, sample: str | None) -> tuple[int, str, bytes]:
        folder = self.server.folder
        if piece is not None:
            content = folder.piece(piece)
            return (
                (200, "application/octet-stream", content)
                if content is not None
                else _refusal(404, "no such piece")
            )
        if kernel is None or sample is None:
            return 200, "text/html; charset=utf-8", self.server.html
        if int(kernel) >= len(folder.rows) or int(sample) >= folder.shape[0]:
            return _refusal(404, "no such row")
        return 200, "application/octet-stream", folder.rows[int(kernel)](int(sample))

    def _send(self, code: int, kind: str, content: bytes, *, body: bool = True) -> None:
        self.send_response(code)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answers what is no request of ours, without repeating anything of it."""
        del message, explain
        self.close_connection = True
        code = 405 if code == 501 else int(code)
        kind, content = _refusal(code, "only GET and HEAD" if code == 405 else "not a request")[1:]
        self._send(code, kind, content)

    def log_message(self, *_: Any) -> None:
        """Says nothing: the address holds the token."""


def _refusal(code: int, reason: str) -> tuple[int, str, bytes]:
    return code, "text/plain; charset=utf-8", f"{visible(reason)}\n".encode()
