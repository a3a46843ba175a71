"""Every sub-command: what it prints, where it writes, and its exit code."""

import json
from pathlib import Path

import pytest

from tangentkit import __version__


def test_help_version_and_bad_commands(tangentkit):
    assert tangentkit("--version").out.strip() == f"tangentkit {__version__}"
    for arguments in ((), ("--help",), ("run", "--help"), ("data", "--help")):
        assert tangentkit(*arguments).code == 0
    wrong = tangentkit("lst")
    assert wrong.code == 2
    assert '"list"' in wrong.err
    assert tangentkit("run").code == 2


def test_list_shows_every_study_with_its_source(tangentkit):
    shown = tangentkit("list")
    assert shown.code == 0
    assert "toy" in shown.out
    assert "surrogate" in shown.out
    assert "Folklore" in shown.out
    listed = json.loads(tangentkit("list", "--json").out)
    assert {"name", "title", "question", "source", "cost"} == set(listed[0])


def test_show_explains_every_field(tangentkit):
    shown = tangentkit("show", "toy")
    assert shown.code == 0
    assert "Coins to flip." in shown.out
    assert "Do heads come up?" in shown.out


def test_run_writes_a_folder_and_prints_the_report(tangentkit):
    done = tangentkit("run", "toy", "--engine", "serial", "--flips", "30", "--seeds", "0-3")
    assert done.code == 0
    report = Path(done.out.splitlines()[-1].removeprefix("report: "))
    assert report.is_file()
    assert report.parts[0] == "runs"
    assert "Heads come up" in done.out
    asked = json.loads((report.parent / "config.json").read_text())
    assert (asked["fields"]["flips"], asked["fields"]["seeds"]) == (30, [0, 1, 2, 3])


def test_json_is_one_object_on_standard_output(tangentkit):
    done = tangentkit("run", "toy", "--engine", "serial", "--json", "--out", "there")
    content = json.loads(done.out)
    assert content["folder"] == "there"
    assert Path(content["report"]).is_file()
    assert content["claims"][0]["verdict"]
    assert [trial["seed"] for trial in content["trials"]] == [0, 1, 2]
    assert "trials: done in" in done.err
    again = json.loads(tangentkit("report", "there", "--json").out)
    assert again == content


def test_scale_chooses_the_config(tangentkit):
    done = json.loads(tangentkit("run", "toy", "--engine", "serial", "--scale", "full", "--json").out)
    assert {trial["flips"] for trial in done["trials"]} == {1000}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "toyy"), "error: unknown study 'toyy'. Try: 'toy'"),
        (("run", "toy", "--flip", "3"), "error: unknown field 'flip'. Try: 'flips'"),
        (("run", "toy", "--flips", "x"), "error: bad value for --flips: expected an integer, got 'x'"),
        (("run", "toy", "--scale", "big"), "error: unknown scale 'big'"),
        (("run", "toy", "--flips", "0"), "error: bad value for --flips: expected at least 1, got 0"),
        (("run", "width-gap", "--train", "0"), "error: bad value for --train: expected at least 1, got 0"),
        (("run", "toy", "--seeds", "0,0"), "error: bad value for --seeds: expected each once, got 0 twice"),
        (("run", "toy", "--chance", "nan"), "error: bad value for --chance: expected a finite number"),
        (("run", "toy", "--seeds", ""), "error: bad value for --seeds: expected one or more"),
        (("run", "all", "--scale", "foo"), "error: unknown scale 'foo'"),
        (("run", "all", "--resume", "nowhere"), "error: nowhere is not the folder of all studies"),
        (("run", "toy", "--resume", "a", "--out", "b"), "expected --resume or --out, got both"),
        (("show", "toyy"), "error: unknown study"),
        (("report", "."), "error: . is not the folder of a run"),
        (("data", "get", "fashion-mini2"), "error: unknown data set 'fashion-mini2'. Try: 'fashion-mini'"),
    ],
)
def test_bad_input_is_one_line_and_code_2_and_writes_nothing(tangentkit, arguments, message):
    done = tangentkit(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert message in done.err
    assert done.err.splitlines()[-1].startswith("error: ")
    assert not list(Path().iterdir())


def test_missing_data_are_named_and_nothing_is_written(tangentkit, monkeypatch, tmp_path):
    monkeypatch.delenv("TANGENTKIT_DATA", raising=False)
    monkeypatch.setenv("TANGENTKIT_CACHE", str(tmp_path / "cache"))
    done = tangentkit("run", "poisoning", "--scale", "evening")
    assert done.code == 2
    assert "no data for this study" in done.err
    assert not (tmp_path / "runs").exists()


def test_a_folder_that_holds_something_is_left_alone(tangentkit):
    Path("taken").mkdir()
    Path("taken/file").write_text("x")
    done = tangentkit("run", "toy", "--engine", "serial", "--out", "taken")
    assert done.code == 2
    assert "not free" in done.err
    assert [path.name for path in Path("taken").iterdir()] == ["file"]


def test_a_failed_trial_is_named_and_resuming_does_it_again(tangentkit):
    done = tangentkit("run", "toy", "--engine", "serial", "--trouble", "error", "--out", "there")
    assert done.code == 0
    assert "a trial failed" in done.out
    assert "the coin is lost" in done.out
    done = tangentkit("run", "--resume", "there", "--engine", "serial", "--trouble", "none")
    assert done.code == 0
    assert "a trial failed" not in done.out
    assert json.loads(Path("there/config.json").read_text())["fields"]["trouble"] == "none"


def test_a_run_without_any_result_is_code_2_and_its_folder_says_why(tangentkit):
    done = tangentkit(
        "run", "toy", "--engine", "serial", "--trouble", "bug", "--seeds", "1", "--out", "there"
    )
    assert done.code == 2
    assert "every trial of toy failed" in done.err.splitlines()[-1]
    assert "ZeroDivisionError" in json.loads(Path("there/status.json").read_text())["error"]


def test_a_bug_of_the_report_shows_itself(tangentkit, monkeypatch):
    monkeypatch.setattr("studies.toy_study.result", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tangentkit("run", "toy", "--engine", "serial", "--out", "there")
    assert "ZeroDivisionError" in json.loads(Path("there/status.json").read_text())["traceback"]


def test_only_the_study_of_a_folder_goes_on_there(tangentkit):
    tangentkit("run", "toy", "--engine", "serial", "--out", "there")
    done = tangentkit("run", "surrogate", "--resume", "there")
    assert done.code == 2
    assert "holds a run of another study" in done.err
    assert tangentkit("run", "--resume", "nowhere").code != 0


def test_run_all_writes_the_index_and_takes_no_fields(tangentkit, monkeypatch):
    from tangentkit.studies import run_all
    from tangentkit.studies.registry import STUDIES

    monkeypatch.setattr(run_all, "STUDIES", {"toy": STUDIES["toy"]})
    done = tangentkit("run", "all", "--engine", "serial", "--out", "there")
    assert done.code == 0
    assert done.out.strip() == "index: there/index.html"
    assert "Heads come up" in Path("there/index.html").read_text()
    again = tangentkit("run", "all", "--engine", "serial", "--resume", "there", "--json")
    assert json.loads(again.out) == {"folder": "there", "index": "there/index.html", "failures": {}}
    assert tangentkit("run", "all", "--flips", "3").code == 2


def test_the_folder_of_one_study_is_not_taken_for_that_of_all_nor_the_other_way(tangentkit):
    assert tangentkit("run", "toy", "--engine", "serial", "--scale", "full", "--out", "all/toy").code == 0
    done = tangentkit("run", "all", "--resume", "all/toy")
    assert done.code == 2
    assert "all/toy is not the folder of all studies" in done.err
    assert "got the run of one study. Try: tangentkit run --resume all/toy" in done.err
    done = tangentkit("run", "--resume", "all")
    assert done.code == 2
    assert "Try: tangentkit run all --resume all" in done.err


def test_all_studies_go_on_at_the_scale_of_their_folder(tangentkit, monkeypatch):
    from tangentkit.studies import run_all
    from tangentkit.studies.registry import STUDIES

    monkeypatch.setattr(run_all, "STUDIES", {"toy": STUDIES["toy"]})
    for more in (("--scale", "full", "--out"), ("--resume",)):
        assert tangentkit("run", "all", "--engine", "serial", *more, "there").code == 0
        assert json.loads(Path("there/toy/config.json").read_text())["scale"] == "full"


def test_failed_trials_are_the_first_remedy_of_a_claim(tangentkit):
    done = tangentkit(
        "run", "toy", "--engine", "serial", "--seeds", "0,1", "--trouble", "error", "--out", "there"
    )
    assert "claims are judged without them; to do them again: tangentkit run --resume there" in done.out
    assert "tangentkit run toy" not in done.out


def test_an_interrupt_is_code_130(tangentkit):
    done = tangentkit("run", "toy", "--engine", "serial", "--trouble", "interrupt", "--out", "there")
    assert done.code == 130
    assert done.err.splitlines()[-1] == "interrupted: go on with: tangentkit run --resume there"
    assert json.loads(Path("there/status.json").read_text())["state"] == "interrupted"


def test_data_list_and_get(tangentkit):
    assert "fashion-mini" in tangentkit("data", "list").out
    rows = {row["name"]: row for row in json.loads(tangentkit("data", "list", "--json").out)}
    assert rows["fashion-mini"]["here"] is True
    done = tangentkit("data", "get", "fashion-mini")
    assert done.code == 0
    assert "fashion-mini" in done.out
    assert tangentkit("data", "get", "digits").out.strip() == "digits needs no files"


def test_report_says_what_was_damaged(tangentkit):
    tangentkit("run", "toy", "--engine", "serial", "--out", "there")
    assert "damaged" not in tangentkit("report", "there").err
    page = Path("there/report.html")
    page.write_text(page.read_text().replace("Coin", "Coil"))
    done = tangentkit("report", "there")
    assert done.code == 0
    assert "missing or damaged, written again: report.html" in done.err
    trial = min(Path("there/trials").glob("*.json"))
    trial.write_text(trial.read_text().replace("0.", "1.", 1))
    done = tangentkit("report", "there")
    assert done.code == 1
    assert done.err.startswith(f"error: {trial} is damaged")


def test_what_a_terminal_would_obey_is_shown(tangentkit):
    done = tangentkit("run", "toy\x1b[31m")
    assert done.code == 2
    assert r"toy\x1b[31m" in done.err
    assert "\x1b" not in done.err


@pytest.mark.parametrize("place", ["~nosuchuser/run", "a\0b"])
def test_places_that_cannot_be_are_bad_input(tangentkit, place):
    for words in (
        ("report", place),
        ("run", "toy", "--engine", "serial", "--out", place),
        ("data", "get", "mnist", "--path", place),
    ):
        done = tangentkit(*words)
        assert done.code == 2
        assert "error: bad path" in done.err


@pytest.mark.parametrize("place", ["file/below", "n" * 300])
def test_a_folder_that_cannot_be_made_is_bad_input(tangentkit, place):
    Path("file").write_text("x")
    done = tangentkit("run", "toy", "--engine", "serial", "--out", place)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"error: cannot make the folder {place}: got ")
    assert [path.name for path in Path().iterdir()] == ["file"]


def test_a_default_folder_that_cannot_be_made_is_bad_input(tangentkit):
    Path("runs").write_text("x")
    done = tangentkit("run", "toy", "--engine", "serial")
    assert done.code == 2
    assert "error: cannot make the folder runs/toy-quick-" in done.err
    assert "--out" in done.err


def test_a_claim_that_is_not_decided_comes_with_the_command_that_would_decide_it(tangentkit):
    done = tangentkit("run", "toy", "--engine", "serial", "--seeds", "2")
    assert "not decided: Heads come up" in done.out
    assert "    tangentkit run toy --scale quick --seeds 2,0,1,3,4" in done.out.splitlines()
