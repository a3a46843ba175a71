"""One source of the version: the package itself, in whatever place it stands."""

import tomllib
from pathlib import Path

import torch

import tangentkit
from compute.toy_kernels import Gaussian
from tangentkit.compute import gram

ROOT = Path(__file__).parent.parent


def test_the_build_reads_the_version_of_the_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["project"]["dynamic"] == ["version"]
    assert "version" not in settings["project"]
    source = ROOT / settings["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{tangentkit.__version__}"' in source.read_text()


def test_a_store_is_made_where_no_metadata_can_be_read(tmp_path, monkeypatch):
    def unreadable(*_):
        raise PermissionError("metadata")

    monkeypatch.setattr("importlib.metadata.distribution", unreadable)
    G = gram(Gaussian(), torch.zeros(2, 1, dtype=torch.float64), store=tmp_path / "k")
    assert G.store.identity["library"]["tangentkit"] == tangentkit.__version__  # type: ignore[attr-defined]


def test_all_public_names_can_be_imported_by_a_star():
    names = {}
    exec("from tangentkit import *", names)
    assert set(dir(tangentkit)) - {"__version__"} <= set(names)
