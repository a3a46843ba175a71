"""`tangentkit run`: a study, or all of them, into a folder with the trials, the figures and a report."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from tangentkit.cli.console import ended_like_ctrl_c, progress_bars, say
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
            Where its config.json is damaged, study and --scale say what to go on with.
        engine: who does the trials: serial, processes, processes://N, dask:// (processes here), dask://HOST:PORT, or
            dask:///PATH of a scheduler file.
        as_json: print one JSON object with the folder, the report, the claims and the numbers.
        fields: any field of the study's config, see `tangentkit show STUDY`.
    """
    if resume is not None and out is not None:
        from tangentkit.core.errors import InputError

        raise InputError(
            "a run that goes on stays in its folder",
            expected="--resume or --out",
            got="both",
            hint="no --out",
        )
    if name == "all":
        _run_all(scale, out, resume, engine, fields, as_json=as_json)
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
    from tangentkit.studies.runner import asked_trials, execute
    from tangentkit.studies.settings import configure

    who = parse_engine(engine)
    config = configure(study, scale, fields)
    asked_trials(study, config)  # what they cannot be done with is named before there is a folder
    folder = claim_folder(out) if out else new_folder(study.name, scale)
    say(f"writing to {folder}")
    with _saying_how_to_go_on("--resume", folder), progress_bars() as progress:
        done = execute(study, config, folder, scale=scale, engine=who, progress=progress)
    print_run(done, folder, as_json=as_json)


def _go_on(
    name: str | None, scale: str | None, folder: Path, engine: str, fields: dict[str, str], *, as_json: bool
) -> None:
    from tangentkit.core.files.safe import as_path
    from tangentkit.studies.run_folder import read_status
    from tangentkit.studies.runner import resume

    who = parse_engine(engine)
    read_status(as_path(folder))
    say(f"going on in {folder}")
    with _saying_how_to_go_on("--resume", folder), progress_bars() as progress:
        done = resume(folder, fields, name=name, scale=scale, engine=who, progress=progress)
    print_run(done, folder, as_json=as_json)


def _run_all(
    scale: str | None,
    out: Path | None,
    resume: Path | None,
    engine: str,
    fields: dict[str, str],
    *,
    as_json: bool,
) -> None:
    from tangentkit.core.errors import InputError
    from tangentkit.studies.run_all import check_scale, run_all, scale_to_go_on_with
    from tangentkit.studies.run_folder import claim_folder, new_folder

    if fields:
        raise InputError(
            "all studies run with their own settings", expected="no fields", got=", ".join(fields)
        )
    who = parse_engine(engine)
    scale = scale_to_go_on_with(resume, scale) if resume else scale or "quick"
    check_scale(scale)
    folder = resume or (claim_folder(out) if out else new_folder("all", scale))
    say(f"writing to {folder}")
    with _saying_how_to_go_on("all", "--scale", scale, "--resume", folder), progress_bars() as progress:
        index, failures = run_all(folder, scale, engine=who, progress=progress, say=say)
    for study, error in failures.items():
        say(f"{study} failed: {error}")
    if as_json:
        print(json.dumps({"folder": str(folder), "index": str(index), "failures": failures}))
    else:
        print(f"index: {index}")
    if failures:
        raise SystemExit(1)


@contextmanager
def _saying_how_to_go_on(*words: str | Path) -> Iterator[None]:
    """Names the command that goes on with what Ctrl-C or SIGTERM ends."""
    command = f"go on with: {shlex.join(['tangentkit', 'run', *map(str, words)])}"
    try:
        with ended_like_ctrl_c():
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(command) from None
    except SystemExit:
        say(f"ended: {command}")
        raise


def print_run(done: "Run", folder: Path, *, as_json: bool) -> None:
    """Prints what came out of a run, for people or as JSON."""
    from tangentkit.core.text import visible
    from tangentkit.studies.run_folder import summary
    from tangentkit.studies.trials.trial import message

    content = summary(done, folder)
    if as_json:
        print(json.dumps(content))
        return
    lines = []
    for claim in done.result.claims:
        lines += [f"{claim.verdict}: {claim.statement}", f"    {claim.evidence}"]
        lines += [f"    {claim.remedy}"] * bool(claim.remedy)
        if claim.seeds_needed and not done.records.failures:
            lines.append(f"    {done.command_with(claim.seeds_needed)}")
    for label, error in done.records.failures.items():
        lines.append(f"a trial failed ({label}): {message(error)}")
    if done.records.failures:
        lines.append(f"claims are judged without them; to do them again: tangentkit run --resume {folder}")
    print(visible("\n".join([f"{done.result.answer}\n", *lines, f"\nreport: {content['report']}"])))
