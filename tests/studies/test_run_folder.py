"""The folder of a run tells the truth: whole, interrupted or failed, and it can be read back."""

import json
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import sklearn

import tangentkit
from studies.toy_study import TOY, Config, trials
from tangentkit.core.errors import DataError, InputError
from tangentkit.core.files.safe import digest
from tangentkit.core.files.seals import seal, unseal
from tangentkit.report import Table
from tangentkit.studies.run_folder import (
    claim_folder,
    damaged_files,
    load_run,
    new_folder,
    rewrite_report,
    summary,
)
from tangentkit.studies.runner import execute
from tangentkit.studies.trials.study import Result
from tangentkit.studies.write_up import Run

FINISHED = {
    "status.json",
    "config.json",
    "environment.json",
    "report.html",
    "trials.csv",
    "tables/shares.csv",
    "figures/shares.png",
    "figures/shares.svg",
}


CONFIG = Config(flips=20)
"""Of the run that most tests look at."""


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def trial_files(config: Config) -> set[str]:
    return {f"trials/{trial.key}.{suffix}" for trial in trials(config) for suffix in ("json", "npz")}


def status(folder) -> dict:
    return json.loads((folder / "status.json").read_text())


def forge(folder, name: str, text: str) -> None:
    """Changes a file and makes the seal fit, as a stranger can."""
    (folder / name).write_text(text)
    known = unseal((folder / "status.json").read_bytes())
    assert known is not None
    known["files"][name] = digest(folder / name)
    (folder / "status.json").write_bytes(seal(known))


@pytest.fixture(scope="module")
def one_run(tmp_path_factory) -> tuple[Run, Path]:
    """A finished run, and its folder."""
    folder = claim_folder(tmp_path_factory.mktemp("runs") / "run")
    return execute(TOY, CONFIG, folder, scale="quick"), folder


@pytest.fixture
def run(one_run) -> Run:
    """A finished run."""
    return one_run[0]


@pytest.fixture
def finished(toy, one_run, tmp_path) -> Path:
    """Its folder."""
    return shutil.copytree(one_run[1], tmp_path / "run")


def test_a_finished_folder_is_complete_and_loads_equal(toy, run, finished):
    whole = FINISHED | trial_files(CONFIG)
    assert files(finished) == whole
    assert status(finished)["state"] == "finished"
    assert set(status(finished)["files"]) == whole - {"status.json"}
    loaded = load_run(finished)
    assert loaded.result.answer == run.result.answer
    assert loaded.result.claims == run.result.claims
    for one, other in zip(loaded.records, run.records, strict=True):
        np.testing.assert_array_equal(one["heads"], other["heads"])
        assert np.isnan(one["missing"])
    assert (loaded.config, loaded.scale, loaded.study) == (run.config, "quick", toy)
    assert loaded.environment == run.environment
    assert run.environment.seconds is not None
    assert run.environment.command == "tangentkit run toy --scale quick --flips 20"
    assert {"python", "torch", "tangentkit"} <= set(run.environment.versions)


def test_the_same_config_gives_the_same_numbers(toy, run, tmp_path):
    second = execute(toy, CONFIG, tmp_path, scale="quick")
    assert run.result.claims == second.result.claims
    assert [row["seed"] for row in run.records] == [row["seed"] for row in second.records] == [0, 1, 2]


def test_the_report_can_be_written_again_from_the_numbers_alone(finished):
    page = (finished / "report.html").read_text()
    for name in ("report.html", "figures/shares.png", "tables/shares.csv"):
        (finished / name).unlink()
    rewrite_report(finished)
    assert files(finished) == FINISHED | trial_files(CONFIG)
    assert (finished / "report.html").read_text() == page


def test_the_report_says_what_is_needed_to_run_it_again(finished):
    page = (finished / "report.html").read_text()
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


def test_a_report_that_fails_keeps_the_numbers_and_can_be_written_later(toy, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tangentkit.studies.write_up.image", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            execute(toy, Config(), tmp_path, scale="quick")
        assert status(tmp_path)["state"] == "failed"
        assert "report.html" not in files(tmp_path)
    rewrite_report(tmp_path)
    assert status(tmp_path)["state"] == "finished"
    assert files(tmp_path) == FINISHED | trial_files(Config())


def test_a_folder_with_something_in_it_is_never_written_to(tmp_path):
    (tmp_path / "precious").write_text("x")
    for taken in (tmp_path, tmp_path / "precious"):
        with pytest.raises(InputError, match="not free"):
            claim_folder(taken)
    assert claim_folder(tmp_path / "new" / "deep").is_dir()
    assert claim_folder(tmp_path / "new" / "deep").is_dir()


def test_default_folders_never_collide(tmp_path):
    folders = {new_folder("toy", "quick", root=tmp_path / "runs") for _ in range(5)}
    assert len(folders) == 5
    assert all(folder.name.startswith("toy-quick-") for folder in folders)


def test_other_folders_and_other_versions_are_refused(finished, tmp_path):
    with pytest.raises(InputError, match="not the folder of a run"):
        load_run(claim_folder(tmp_path / "empty"))
    asked = json.loads((finished / "config.json").read_text())
    asked["fields"]["new_field"] = 1
    forge(finished, "config.json", json.dumps(asked))
    with pytest.raises(DataError, match="another version"):
        load_run(finished)


def test_a_field_that_came_after_the_run_has_its_default(run, finished):
    asked = json.loads((finished / "config.json").read_text())
    name = min(asked["fields"])
    asked["fields"].pop(name)
    forge(finished, "config.json", json.dumps(asked))
    default = getattr(type(run.config)(), name)
    assert getattr(load_run(finished).config, name) == default


def test_the_summary_is_json_with_claims_and_numbers(run, finished):
    content = json.loads(json.dumps(summary(run, finished), allow_nan=False))
    assert content["report"] == str(finished / "report.html")
    (claim,) = content["claims"]
    assert claim["verdict"] in {"holds", "does not hold", "not decided"}
    assert claim["values"] == run.records.column("share")
    assert content["trials"][0]["missing"] == "nan"
    assert "heads" not in content["trials"][0]


# Seals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(FINISHED | {"trials/*.json", "trials/*.npz"}))
def test_one_flipped_bit_in_any_file_is_noticed(finished, name):
    """Numbers of all kinds: a flipped digit is valid JSON of the right kind."""
    path = min(finished.glob(name))
    name = str(path.relative_to(finished))
    content = path.read_bytes()
    for where in range(0, len(content), max(1, len(content) // 20)):
        path.write_bytes(content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :])
        if name != "status.json":
            assert damaged_files(finished) == [name]
        if name.startswith("trials/") or name in ("status.json", "config.json", "environment.json"):
            for read in (load_run, rewrite_report):
                with pytest.raises(DataError, match=f"{path} is damaged"):
                    read(finished)
            assert path.read_bytes()[where] == content[where] ^ 1, "what is damaged is left as evidence"
    path.write_bytes(content)
    assert damaged_files(finished) == []


def test_what_a_report_consists_of_is_written_again(finished):
    content = (finished / "report.html").read_bytes()
    (finished / "report.html").write_bytes(content.replace(b"Coin", b"Coil"))
    (finished / "tables" / "shares.csv").unlink()
    assert damaged_files(finished) == ["report.html", "tables/shares.csv"]
    rewrite_report(finished)
    assert damaged_files(finished) == []
    assert (finished / "report.html").read_bytes() == content


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"state": "finished"}', "[" * 100_000, "{}"])
def test_a_malformed_status_is_named(finished, content):
    (finished / "status.json").write_text(content)
    for read in (load_run, rewrite_report, damaged_files):
        with pytest.raises(DataError, match=r"status\.json is damaged.*run the study again"):
            read(finished)


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"state": 3, "files": {}},
        {"state": "finished", "files": []},
        {"state": "finished", "files": {"../../secret": "0"}},
        {"state": "finished", "files": {"/dev/zero": "0"}},
        {"state": "finished", "files": {"config.json": None}},
    ],
)
def test_a_status_of_another_kind_is_named_though_its_seal_fits(finished, known):
    (finished / "status.json").write_bytes(seal(known))
    for read in (load_run, rewrite_report, damaged_files):
        with pytest.raises(DataError, match=r"status\.json is damaged"):
            read(finished)


@pytest.mark.parametrize("name", ["config.json", "environment.json"])
@pytest.mark.parametrize("content", ["{", "[]", "7", "{}", "[" * 100_000, '{"study": [], "scale": 1}'])
def test_malformed_files_are_named_though_their_seals_fit(finished, name, content):
    forge(finished, name, content)
    with pytest.raises(DataError, match=str(finished)):
        load_run(finished)


@pytest.mark.parametrize(
    ("name", "value"),
    [("flips", "20"), ("flips", -1), ("seeds", "012"), ("chance", True), ("names", "penny")],
)
def test_a_field_of_another_kind_is_named_with_what_was_expected(finished, name, value):
    asked = json.loads((finished / "config.json").read_text())
    asked["fields"][name] = value
    forge(finished, "config.json", json.dumps(asked))
    with pytest.raises(DataError, match=rf"config\.json is damaged.*bad value .*{name}.*expected.*--resume"):
        load_run(finished)


def test_a_report_in_a_strangers_folder_is_written_nowhere_else(finished, tmp_path):
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.write_text("mine")
    place.mkdir()
    for name in ("report.html", "status.json", "config.json", "figures/shares.svg"):
        path = finished / name
        path.with_name(f".{path.name}.partial").symlink_to(victim)
    (finished / "report.html").unlink()
    (finished / "report.html").symlink_to(victim)
    rewrite_report(finished)
    assert victim.read_text() == "mine"
    assert not (finished / "report.html").is_symlink()
    for path in (finished / "tables").iterdir():
        path.unlink()
    (finished / "tables").rmdir()
    (finished / "tables").symlink_to(place)
    with pytest.raises(DataError, match=rf"cannot write .*{finished}/tables, which is a link"):
        rewrite_report(finished)
    assert not list(place.iterdir())


def test_a_pipe_in_a_strangers_folder_is_not_waited_at(finished):
    (finished / "config.json").unlink()
    os.mkfifo(finished / "config.json")
    with pytest.raises(DataError, match=r"config\.json is not a file"):
        load_run(finished)


def test_versions_are_found_where_no_metadata_can_be_read(toy, tmp_path, monkeypatch):
    def unreadable(*_):
        raise PermissionError("metadata")

    monkeypatch.setattr("importlib.metadata.distribution", unreadable)
    versions = execute(toy, Config(), tmp_path, scale="quick").environment.versions
    assert versions["tangentkit"] == tangentkit.__version__
    assert versions["scikit-learn"] == sklearn.__version__


def test_the_page_links_to_every_file_of_its_run(finished):
    links = set(re.findall('<a href="([^#"]+)"', (finished / "report.html").read_text()))
    assert links == files(finished) - trial_files(CONFIG) - {"report.html", "status.json"}


def test_more_seeds_are_asked_for_by_a_command_that_keeps_those_that_were_run(run):
    run = replace(run, config=Config(seeds=(3, 0)))
    assert run.command_with(5) == "tangentkit run toy --scale quick --seeds 3,0-2,4"
    assert run.command_with(1) == "tangentkit run toy --scale quick --seeds 3,0"


def test_names_of_tables_and_figures_are_names_of_files():
    with pytest.raises(InputError, match=r"bad name of a table or figure.*'my table'"):
        Result(answer="", claims=(), tables={"my table": Table("t", ("a",), ())}, figures={})
