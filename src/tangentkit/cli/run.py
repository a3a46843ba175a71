"""`tangentkit run`: a study, or all of them, into a folder with the trials, the figures and a report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tangentkit.cli.console import progress_bars, say
from tangentkit.cli.engines import parse_engine

if TYPE_CHECKING:
    from tangentkit.studies.write_up import Run


def run(
    name: str | None = None,
    *,
    scale: str | None = None,
    out: Path | None = None,
    resume: Path | None = None,
    engine: str = "processes",
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    **fields: str,
) -> None:
    """Run a study and write a folder with its trials, figures and a report.

    Every finished trial is kept at once: after Ctrl-C, a crash or kill -9, --resume goes on. A trial that fails is
    noted, and the others go on.

    Args:
        name: a study, see `tangentkit list`; or all: every study, one after the other, and one page about them.
        scale: quick (minutes; the default), evening (what a small machine does in an hour or so) or full (the
            published size).
        out: a new or empty folder; default: runs/STUDY-SCALE-TIME.
        resume: the folder of an earlier run to go on with; study, scale and fields are those of the folder, but for
            what is given anew: another scale has all its own fields. Trials that both ask for are not done again.
        engine: who does the trials: serial, processes, processes://N, dask:// (processes here), dask://HOST:PORT, or
            dask:///PATH of a scheduler file.
        as_json: print one JSON object with the folder, the report, the claims and the numbers.
        fields: any field of the study's config, see `tangentkit show STUDY`.
    """
    if name == "all":
        _run_all(scale or "quick", out, resume, engine, fields, as_json=as_json)
    elif resume is not None:
        _go_on(name, scale, resume, engine, fields, as_json=as_json)
    else:
        _run_one(name, scale or "quick", out, engine, fields, as_json=as_json)


def _run_one(
    name: str | None, scale: str, out: Path | None, engine: str, fields: dict[str, str], *, as_json: bool
) -> None:
    from tangentkit.studies.registry import STUDIES, find

    if name is None:
        from tangentkit.core.errors import InputError

        raise InputError("which study?", expected=f"one of {', '.join(STUDIES)}, or all", got="none")
    study = find(name)
    say(f"{study.title}: {study.cost.get(scale, '')}".rstrip(": "))

    from tangentkit.studies.run_folder import claim_folder, new_folder
    from tangentkit.studies.runner import execute
    from tangentkit.studies.settings import configure

    who = parse_engine(engine)
    config = configure(study, scale, fields)
    study.load().trials(config)  # data and models that are missing are named before there is a folder
    folder = claim_folder(out) if out else new_folder(study.name, scale)
    say(f"writing to {folder}")
    with progress_bars() as progress:
        done = execute(study, config, folder, scale=scale, engine=who, progress=progress)
    print_run(done, folder, as_json=as_json)


def _go_on(
    name: str | None, scale: str | None, folder: Path, engine: str, fields: dict[str, str], *, as_json: bool
) -> None:
    from tangentkit.core.errors import InputError
    from tangentkit.studies.run_folder import read_config
    from tangentkit.studies.runner import resume

    found = read_config(folder)[0].name
    if name not in (None, found):
        raise InputError(f"{folder} holds a run of another study", expected=name, got=found)
    say(f"going on in {folder}")
    with progress_bars() as progress:
        done = resume(folder, fields, scale=scale, engine=parse_engine(engine), progress=progress)
    print_run(done, folder, as_json=as_json)


def _run_all(
    scale: str,
    out: Path | None,
    resume: Path | None,
    engine: str,
    fields: dict[str, str],
    *,
    as_json: bool,
) -> None:
    from tangentkit.core.errors import InputError
    from tangentkit.studies.run_all import run_all
    from tangentkit.studies.run_folder import claim_folder, new_folder

    if fields:
        raise InputError(
            "all studies run with their own settings", expected="no fields", got=", ".join(fields)
        )
    who = parse_engine(engine)
    folder = resume or (claim_folder(out) if out else new_folder("all", scale))
    say(f"writing to {folder}")
    with progress_bars() as progress:
        index, failures = run_all(folder, scale, engine=who, progress=progress, say=say)
    for study, error in failures.items():
        say(f"{study} failed: {error}")
    if as_json:
        print(json.dumps({"folder": str(folder), "index": str(index), "failures": failures}))
    else:
        print(f"index: {index}")
    if failures:
        raise SystemExit(1)


def print_run(done: "Run", folder: Path, *, as_json: bool) -> None:
    """Prints what came out of a run, for people or as JSON."""
    from tangentkit.core.text import visible
    from tangentkit.studies.run_folder import summary

    content = summary(done, folder)
    if as_json:
        print(json.dumps(content))
        return
    lines = []
    for claim in done.result.claims:
        lines += [f"{claim.verdict}: {claim.statement}", f"    {claim.evidence}"]
        lines += [f"    {claim.remedy}"] * bool(claim.remedy)
        if claim.seeds_needed:
            lines.append(f"    {done.command_with(claim.seeds_needed)}")
    for label, error in done.records.failures.items():
        lines.append(f"a trial failed ({label}): {error.strip().splitlines()[-1]}")
    print(visible("\n".join([f"{done.result.answer}\n", *lines, f"\nreport: {content['report']}"])))
