"""The folder of a run tells the truth: whole, interrupted or failed, and it can be read back."""

import json

import numpy as np
import pytest

from studies.toy_study import Config
from tangentkit.core.errors import DataError, InputError, NumericalError
from tangentkit.studies.run_folder import (
    claim_folder,
    execute,
    load_run,
    new_folder,
    rewrite_report,
    summary,
)

FINISHED = {
    "status.json",
    "config.json",
    "environment.json",
    "numbers.json",
    "arrays.npz",
    "report.html",
    "tables/shares.csv",
    "figures/shares.png",
    "figures/shares.svg",
}


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def status(folder) -> dict:
    return json.loads((folder / "status.json").read_text())


def test_a_finished_folder_is_complete_and_loads_equal(toy, tmp_path):
    run = execute(toy, Config(flips=20), tmp_path, scale="quick")
    assert files(tmp_path) == FINISHED
    assert status(tmp_path) == {"state": "finished"}
    loaded = load_run(tmp_path)
    assert loaded.result == run.result
    np.testing.assert_array_equal(loaded.result.flips, run.result.flips)  # pyright: ignore
    assert (loaded.config, loaded.scale, loaded.study) == (run.config, "quick", toy)
    assert loaded.environment == run.environment
    assert run.environment.seconds is not None
    assert run.environment.command == "tangentkit run toy --scale quick --flips 20"
    assert {"python", "torch", "tangentkit"} <= set(run.environment.versions)


def test_the_same_config_gives_the_same_numbers(toy, tmp_path):
    first, second = (execute(toy, Config(), claim_folder(tmp_path / name), scale="quick") for name in "ab")
    assert first.result == second.result


def test_the_report_can_be_written_again_from_the_numbers_alone(toy, tmp_path):
    execute(toy, Config(), tmp_path, scale="quick")
    page = (tmp_path / "report.html").read_text()
    for name in ("report.html", "figures/shares.png", "tables/shares.csv"):
        (tmp_path / name).unlink()
    rewrite_report(tmp_path)
    assert files(tmp_path) == FINISHED
    assert (tmp_path / "report.html").read_text() == page


def test_the_report_says_what_is_needed_to_run_it_again(toy, tmp_path):
    execute(toy, Config(flips=20), tmp_path, scale="quick")
    page = (tmp_path / "report.html").read_text()
    for text in (
        "tangentkit run toy --scale quick --flips 20",
        "0" * 64,
        "Folklore",
        "gold",
        "Coins to flip.",
    ):
        assert text in page
    assert "&lt;script&gt;note&lt;/script&gt;" in page
    assert "<script" not in page
    assert "<b>" not in page


@pytest.mark.parametrize(
    ("trouble", "error", "state"),
    [
        ("interrupt", KeyboardInterrupt, "interrupted"),
        ("error", NumericalError, "failed"),
        ("bug", ZeroDivisionError, "failed"),
    ],
)
def test_trouble_passes_through_and_leaves_a_folder_that_says_so(toy, tmp_path, trouble, error, state):
    with pytest.raises(error):
        execute(toy, Config(trouble=trouble), tmp_path, scale="quick")
    assert files(tmp_path) == {"status.json", "config.json", "environment.json"}
    assert status(tmp_path)["state"] == state
    assert state == "interrupted" or error.__name__ in status(tmp_path)["error"]
    with pytest.raises(InputError, match=f"status '{state}'"):
        load_run(tmp_path)


def test_a_report_that_fails_keeps_the_numbers_and_can_be_written_later(toy, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("studies.toy_study.Result.figures", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            execute(toy, Config(), tmp_path, scale="quick")
        assert status(tmp_path)["state"] == "failed"
        assert "report.html" not in files(tmp_path)
    rewrite_report(tmp_path)
    assert status(tmp_path) == {"state": "finished"}
    assert files(tmp_path) == FINISHED


def test_a_folder_with_something_in_it_is_never_written_to(tmp_path):
    (tmp_path / "precious").write_text("x")
    for taken in (tmp_path, tmp_path / "precious"):
        with pytest.raises(InputError, match="not free"):
            claim_folder(taken)
    assert claim_folder(tmp_path / "new" / "deep").is_dir()
    assert claim_folder(tmp_path / "new" / "deep").is_dir()


def test_default_folders_never_collide(toy, tmp_path):
    folders = {new_folder(toy, "quick", root=tmp_path / "runs") for _ in range(5)}
    assert len(folders) == 5
    assert all(folder.name.startswith("toy-quick-") for folder in folders)


def test_other_folders_and_other_versions_are_refused(toy, tmp_path):
    with pytest.raises(InputError, match="not the folder of a run"):
        load_run(tmp_path)
    execute(toy, Config(), tmp_path, scale="quick")
    asked = json.loads((tmp_path / "config.json").read_text())
    asked["fields"]["new_field"] = 1
    (tmp_path / "config.json").write_text(json.dumps(asked))
    with pytest.raises(DataError, match="another version"):
        load_run(tmp_path)


def test_the_summary_is_json_with_claims_and_numbers(toy, tmp_path):
    run = execute(toy, Config(), tmp_path, scale="quick")
    content = json.loads(json.dumps(summary(run, tmp_path), allow_nan=False))
    assert content["report"] == str(tmp_path / "report.html")
    (claim,) = content["claims"]
    assert claim["verdict"] in {"holds", "does not hold", "not decided"}
    assert claim["values"] == list(run.result.shares)  # pyright: ignore
    assert content["numbers"]["missing"] == "nan"
