"""What the documents show runs: tutorials as scripts, code of pages block by block."""

import re
import runpy
import sys
from pathlib import Path

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
]


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials_run_and_assert(path, monkeypatch, tmp_path, capsys):
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
        pytest.importorskip("transformers", reason="transformers is not installed: pip install 'tangentkit[hf]'")
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
