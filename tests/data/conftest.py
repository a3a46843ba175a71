"""A tiny data set of our own, a bare machine, and a web server that can misbehave."""

import gzip
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from data.toy_set import CONTENT, md5, tarred, zipped
from tangentkit.data import is_here, loading
from tangentkit.data.registry import SETS, Edition, Entry, File


@pytest.fixture
def bare(monkeypatch, tmp_path) -> Path:
    """A machine without data sets; gives its cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.delenv("TANGENTKIT_DATA", raising=False)
    monkeypatch.setenv("TANGENTKIT_CACHE", str(cache))
    return cache


@pytest.fixture
def real_cifar(real_data) -> None:
    """CIFAR-10 in its binary batches; the copy of packed images must be unpacked into the cache folder."""
    if not is_here("cifar10"):
        pytest.skip("CIFAR-10 is not here: unpack it to the cache folder (see `tangentkit data list`)")


@dataclass
class Server:
    """A web server on this machine: what it answers at each path, and what it was asked."""

    address: str
    answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def serve(self, path: str, content: bytes, *, claimed: int | None = None) -> str:
        """Answers with the content; a claimed length beyond it makes the transfer break off."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Length", str(claimed or len(content)))
            request.end_headers()
            request.wfile.write(content)

        self.answers[path] = answer
        return self.address + path


@pytest.fixture
def server() -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.path)
            answer = state.answers.get(self.path)
            answer(self) if answer else self.send_error(404)

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    http.shutdown()
    thread.join()
    http.server_close()


def toy_entry(files: tuple[File, ...], **options) -> Entry:
    edition = Edition(("toy", "toy/raw"), {"train": files})
    return Entry("toy", "a toy", "us", "none", "1 kB", ("train",), ("a", "b"), editions=(edition,), **options)


@pytest.fixture
def install(monkeypatch) -> Callable[..., Entry]:
    """Puts a toy set of these files into the table."""

    def put(files: tuple[File, ...] | None = None, **options) -> Entry:
        files = files or tuple(File(name, md5(content)) for name, content in CONTENT.items())
        entry = toy_entry(files, **options)
        monkeypatch.setitem(SETS, "toy", entry)
        monkeypatch.setitem(loading.READERS, "toy", loading._idx_images)
        return entry

    return put


@pytest.fixture
def toy(install) -> Entry:
    return install()


@pytest.fixture(params=["gz", "plain", "tar", "zip"])
def served_toy(request, server, install) -> Entry:
    """The toy set on the web, in each form in which sets are handed on."""
    if request.param in {"gz", "plain"}:
        suffix = ".gz" if request.param == "gz" else ""
        shape = gzip.compress if request.param == "gz" else bytes
        return install(
            tuple(
                File(name, md5(content), (server.serve(f"/{name}{suffix}", shape(content)),))
                for name, content in CONTENT.items()
            )
        )
    pack = {"tar": tarred, "zip": zipped}[request.param]({f"deep/{n}": c for n, c in CONTENT.items()})
    urls = (server.serve(f"/toy.{request.param}", pack),)
    return install(tuple(File(name, md5(content), urls, f"deep/{name}") for name, content in CONTENT.items()))


@pytest.fixture
def write_toy() -> Callable[..., Path]:
    """Writes the files of the toy set to a folder."""

    def write(folder: Path, *names: str, compress: bool = False) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names or CONTENT:
            if compress:
                (folder / f"{name}.gz").write_bytes(gzip.compress(CONTENT[name]))
            else:
                (folder / name).write_bytes(CONTENT[name])
        return folder

    return write
