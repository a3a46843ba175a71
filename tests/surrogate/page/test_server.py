"""The served page: it shows what the file shows, and hostile requests get nothing."""

import http.client
import json
import os
import socket
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

import tangentkit as tk
from surrogate.page.conftest import Shown
from surrogate.page.sample_explanation import HOSTILE, M, N, picture_explanation
from tangentkit.core.errors import DataError, InputError
from tangentkit.surrogate.page import PageServer, open_folder, write_folder


@contextmanager
def serving(folder):
    with PageServer(open_folder(folder)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(picture_explanation(), tmp_path_factory.mktemp("run") / "page")


@pytest.fixture(scope="module")
def server(folder):
    with serving(folder) as running:
        yield running


def ask(server, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def test_rows_are_those_of_the_kernels(server, explanation):
    for kernel, view in enumerate(explanation.kernels):
        status, raw, _ = ask(server, f"/{server.token}/row/{kernel}/7")
        assert status == 200
        assert np.array_equal(np.frombuffer(raw, "<f4"), np.asarray(view.matrix)[7].astype(np.float32))


@pytest.mark.browser
def test_the_served_page_shows_every_kernel_whole(browser, server, explanation):
    browser.get_log("browser")
    shown = Shown(browser, server.url)
    shown.open("#sample=5&output=1&kernel=2")
    view = explanation.kernels[2]
    exact = view.coefficients[:, 1] * np.asarray(view.matrix)[5] + view.offsets[1] / M
    listed = "[...document.querySelectorAll('.side.for .voice')].map(v => Number(v.dataset.train))"
    assert shown.script(listed) == np.argsort(-exact)[:10].tolist()
    assert len(shown.table(".boxes")) == 4
    assert {row[-1] for row in shown.table(".logits")} == {"0"}  # nothing is rounded
    shown.keys("j")
    assert shown.sample(6) == 6
    assert shown.browser.title.startswith("<script>")
    sites = "performance.getEntriesByType('resource').map(r => new URL(r.name).origin)"
    assert set(shown.script(sites)) == {server.url.rpartition("/")[0].rpartition("/")[0]}
    assert browser.get_log("browser") == []


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


def test_answers_forbid_frames_sniffing_and_copies(server):
    _, _, headers = ask(server, f"/{server.token}/")
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in headers
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/piece/tables",
        "/{other}/",
        "/{other}/piece/tables",
        "/{token}",
        "/{token}/..",
        "/{token}/../{token}/",
        "/{token}/page.json",
        "/{token}/piece/",
        "/{token}/piece/../page.json",
        "/{token}/piece/..%2fpage.json",
        "/{token}/piece/%2e%2e/page.json",
        "/{token}/piece/....//page.json",
        "/{token}/piece//etc/passwd",
        "/{token}/piece/..\\page.json",
        "/{token}/piece/tables%00",
        "/{token}/piece/tables/",
        "/{token}/piece/tables?x=1",
        "/{token}/piece/nothing",
        "/{token}/row/0/-1",
        "/{token}/row/0/24",
        "/{token}/row/3/0",
        "/{token}/row/0/1e3",
        "/{token}/row/0/0/../../..",
        "/{token}/row/0/٣",
        "http://127.0.0.1/{token}/",
        "/{token}/" + "a" * 5000,
    ],
)
def test_nothing_but_the_page_its_pieces_and_its_rows_is_to_be_had(server, path):
    path = path.format(token=server.token, other="A" * len(server.token))
    raw = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.server_address[1]}\r\nConnection: close\r\n\r\n"
    answer = exchange(server, raw.encode())
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 "))
    assert b"passwd" not in answer
    assert b"sha256" not in answer


def exchange(server, raw: bytes) -> bytes:
    with socket.create_connection(server.server_address, timeout=10) as connection:
        connection.sendall(raw)
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
        return b"".join(parts)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "<script>"])
def test_only_reading_is_allowed(server, folder, method):
    before = sorted(os.walk(folder))
    answer = exchange(server, f"{method} /{server.token}/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"<script>" not in answer
    assert sorted(os.walk(folder)) == before


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
def test_other_hosts_and_other_pages_are_refused(server, headers):
    status, body, _ = ask(server, f"/{server.token}/piece/tables", **headers)
    assert status == 403
    assert len(body) < 40


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\xff\x16\x03\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET " + b"/a" * 40000 + b"\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_the_server_goes_on(server, raw):
    answer = exchange(server, raw)
    assert answer == b"" or b"not a request" in answer or b" 405 " in answer
    assert ask(server, f"/{server.token}/")[0] == 200


def test_two_servers_have_two_tokens(server, folder):
    with PageServer(open_folder(folder)) as other:
        assert len(other.token) >= 40
        assert other.token != server.token


def test_head_says_how_long_it_would_be(server):
    status, body, headers = ask(server, f"/{server.token}/", method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == len(ask(server, f"/{server.token}/")[1])


def test_rows_come_from_a_store_inside_the_folder(tmp_path, rng):
    model = torch.nn.Linear(3, 2)
    x, train = (
        torch.from_numpy(rng.normal(size=(N, 3))).float(),
        torch.from_numpy(rng.normal(size=(M, 3))).float(),
    )
    stored = tk.gram(
        tk.ConjugateKernel(model), x, train, store=tmp_path / "run" / "kernel.zarr", tile=32, progress=False
    )
    plain = picture_explanation()
    view = replace(plain.kernels[0], matrix=stored)
    folder = write_folder(replace(plain, kernels=(view, plain.kernels[1])), tmp_path / "run")
    assert [path.name for path in (folder / "rows").iterdir()] == ["1"]
    opened = open_folder(folder)
    for i in (0, N - 1):
        assert opened.rows[0](i) == stored[i, 0:M].numpy().astype("<f4").tobytes()


def test_damage_is_named_and_nothing_wrong_is_served(tmp_path):
    folder = write_folder(picture_explanation(), tmp_path / "page")
    rows = folder / "rows" / "0"
    raw = bytearray(rows.read_bytes())
    raw[4 * M * 3] ^= 1
    rows.write_bytes(raw)
    (folder / "pieces" / "network").write_bytes(b"other")
    with serving(folder) as server:
        answers = [
            ask(server, f"/{server.token}/{place}") for place in ("row/0/2", "row/0/5", "piece/network")
        ]
    assert [status for status, _, _ in answers] == [500, 200, 500]
    assert b"damaged at row 2" in answers[0][1]


@pytest.mark.parametrize("store", ["../other", "/etc", "a/../../other"])
def test_a_folder_of_a_stranger_reads_nothing_outside(tmp_path, store):
    from tangentkit.core.files.seals import seal

    (tmp_path / "other").mkdir()
    folder = tmp_path / "page"
    folder.mkdir()
    index = {"title": HOSTILE, "shape": [2, 2], "kernels": [store], "pieces": {}}
    (folder / "page.json").write_bytes(seal(index))
    with pytest.raises(DataError, match="outside of it"):
        open_folder(folder)
    (folder / "page.json").write_bytes(seal({**index, "kernels": [], "pieces": {"../../secret": "0"}}))
    with pytest.raises(DataError, match="names what is no piece"):
        open_folder(folder)


def test_what_is_no_folder_of_a_page_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InputError, match="is not the folder of a page"):
            open_folder(path)
    (tmp_path / "page.json").write_text(json.dumps({"shape": [1, 1]}))
    with pytest.raises(DataError, match="damaged"):
        open_folder(tmp_path)


def test_a_port_that_is_taken_is_an_error(folder, server):
    with pytest.raises(DataError, match="cannot listen at port"):
        PageServer(open_folder(folder), port=server.server_address[1])
