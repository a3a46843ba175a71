"""What the documents show runs: tutorials as scripts, code of pages block by block."""

import re
import runpy
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
RULE = ROOT / "docs" / "how-to" / "layer-rule.md"
PAGES = [
    ROOT / "README.md",
    ROOT / "docs" / "index.md",
    ROOT / "docs" / "all-of-tangentkit.md",
    RULE,
    ROOT / "docs" / "how-to" / "exact-sketch-or-conjugate.md",
    ROOT / "docs" / "how-to" / "cluster.md",
    ROOT / "docs" / "how-to" / "scikit-learn.md",
    ROOT / "docs" / "how-to" / "hugging-face.md",
    ROOT / "docs" / "how-to" / "track-a-training.md",
    ROOT / "docs" / "how-to" / "why-did-it-say-that.md",
]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials_run_and_assert(path, monkeypatch, tmp_path, capsys):
    if path.stem == "follow_a_fine_tuning":
        pytest.importorskip(
            "transformers", reason="transformers is not installed: pip install 'tangentkit[hf]'"
        )
    monkeypatch.setattr(sys, "argv", [str(path), str(tmp_path / "figure.png")])
    runpy.run_path(str(path), run_name="__main__")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.stem)
def test_python_of_pages_runs(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # what pages write
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL)
    assert blocks
    if any("engines.Dask" in block for block in blocks):
        pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tangentkit[cluster]'")
    if any("from transformers" in block for block in blocks):
        pytest.importorskip(
            "transformers", reason="transformers is not installed: pip install 'tangentkit[hf]'"
        )
    namespace: dict = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(path), "exec"), namespace)


def test_the_how_to_makes_its_parameter_fast():
    import torch

    import tangentkit as tk
    from tangentkit.empirical.rules import base

    blocks = re.findall(r"```python\n(.*?)```", RULE.read_text(), re.DOTALL)
    base.RULES.pop("ScaleBackward", None)
    namespace: dict = {}
    exec(blocks[0], namespace)
    model, x = namespace["Net"](), torch.randn(6, 4)
    route = {row.parameter: row.route for row in tk.TangentKernel(model).plan(x).rows}
    assert route["weight"].startswith("fallback")
    try:
        exec(blocks[1], namespace)
        route = {row.parameter: row.route for row in tk.TangentKernel(model).plan(x).rows}
        assert route["weight"] == "elementwise"
    finally:
        base.RULES.pop("ScaleBackward", None)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


@pytest.mark.parametrize(
    "page", ["docs/design.md", "docs/glossary.md", "docs/how-to/layer-rule.md", "CONTRIBUTING.md"]
)
def test_files_that_pages_name_exist(page):
    named = set(re.findall(r"[\w/]+\.(?:py|html)\b", (ROOT / page).read_text()))
    assert named
    places = [ROOT, ROOT / "src", ROOT / "src" / "tangentkit"]
    assert not {name for name in named if not any((place / name).is_file() for place in places)}


def test_the_design_draws_the_tree_of_packages():
    drawn = (ROOT / "docs" / "design.md").read_text().split("```")[1]
    _, *parts = re.split(r"^(\w+)/", drawn, flags=re.MULTILINE)
    below = dict(zip(parts[::2], parts[1::2], strict=True))
    found = {name: set(re.findall(r"^   (\w+)/", text, re.MULTILINE)) for name, text in below.items()}
    source = ROOT / "src" / "tangentkit"
    assert found == {name: {f.parent.name for f in (source / name).glob("*/__init__.py")} for name in found}


def test_the_api_pages_list_every_public_name():
    import tangentkit as tk

    pages = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    listed = set(re.findall(r"^\s+tangentkit\.([\w.]+)$", pages, re.MULTILINE))
    described = set(re.findall(r"^\.\. auto\w+:: tangentkit\.([\w.]+)$", pages, re.MULTILINE))
    packages = {name for name in dir(tk) if isinstance(getattr(tk, name), ModuleType)}
    assert set(dir(tk)) - packages - {"__version__"} <= described
    assert listed == described
