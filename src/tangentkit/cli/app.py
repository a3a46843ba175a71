"""The sub-commands. Whatever is slow to import is imported by the command that needs it.

Results go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 a run failed,
2 bad input, 130 interrupted.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

from cyclopts import App, CycloptsError, Parameter

from tangentkit import __version__
from tangentkit.cli.audit import audit
from tangentkit.cli.console import exit_code, print_rows, progress_bars, say
from tangentkit.cli.explain import explain
from tangentkit.cli.gram import gram
from tangentkit.cli.run import print_run, run
from tangentkit.cli.serve import serve

Json = Annotated[bool, Parameter(name="--json", negative="")]

app = App(
    name="tangentkit",
    help="The kernels that neural networks carry, and the studies about them.",
    version=f"tangentkit {__version__}",
    suppress_keyboard_interrupt=False,
)
data = App(name="data", help="Data sets: list them, get them.")
app.command(data)
app.command(run)
app.command(gram)
app.command(explain)
app.command(serve)
app.command(audit)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits with its code."""
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        say(f"interrupted: {interrupt}" if interrupt.args else "interrupted")
        sys.exit(130)
    except Exception as error:
        code = exit_code(error)
        if code is None:
            raise
        from tangentkit.core.text import visible  # `core` is imported already, see `exit_code`

        say(f"error: {visible(str(error))}")
        sys.exit(code)
    sys.exit(0)


@app.command(name="list")
def list_studies(*, as_json: Json = False) -> None:
    """List the studies with their sources and costs.

    Args:
        as_json: print JSON.
    """
    from tangentkit.studies.registry import STUDIES

    if as_json:
        fields = ("name", "title", "question", "source", "cost")
        print(json.dumps([{name: getattr(study, name) for name in fields} for study in STUDIES.values()]))
        return
    print_rows(
        ("study", "what it asks", "source", "quick"),
        [(study.name, study.title, study.source, study.cost["quick"]) for study in STUDIES.values()],
    )
    say("run one: tangentkit run STUDY    its fields: tangentkit show STUDY")


@app.command
def show(name: str) -> None:
    """Show a study: its question, its cost, and every field that `run` can set.

    Args:
        name: a study, see `tangentkit list`.
    """
    from tangentkit.studies.registry import find
    from tangentkit.studies.settings import field_rows

    study = find(name)
    print(f"{study.title}\n\n{study.question}\n\nSource: {study.source}")
    for scale, cost in study.cost.items():
        print(f"Cost of --scale {scale}: {cost}")
    scales = study.load().SCALES
    print_rows(("field", *scales, "meaning"), field_rows(list(scales.values())))


@app.command
def report(folder: Path, *, as_json: Json = False) -> None:
    """Write tables, figures and report of a run's folder again, from its trials.

    Args:
        folder: of a run.
        as_json: print one JSON object with the folder, the report, the claims and the numbers.
    """
    from tangentkit.studies.run_folder import damaged_files, rewrite_report

    with progress_bars() as progress:
        damaged = damaged_files(folder)
        done = rewrite_report(folder, progress=progress)
    if damaged:
        say(f"missing or damaged, written again: {', '.join(damaged)}")
    print_run(done, folder, as_json=as_json)


@data.command(name="list")
def list_data(*, as_json: Json = False) -> None:
    """List the data sets and where they are.

    Args:
        as_json: print JSON.
    """
    from dataclasses import asdict

    from tangentkit.data import available

    sets = available()
    if as_json:
        print(json.dumps([asdict(one) for one in sets]))
        return
    print_rows(
        ("data set", "what it is", "size", "licence", "here", "where, or how to get it"),
        [
            (one.name, one.title, one.size, one.licence, "yes" if one.here else "no", one.where)
            for one in sets
        ],
    )


@data.command
def get(name: str, *, path: Path | None = None) -> None:
    """Download a data set, if it is not here, and check it.

    Args:
        name: a data set, see `tangentkit data list`.
        path: the folder to put it in; default: the cache folder.
    """
    from tangentkit.data import fetch

    folder = fetch(name, path)
    print(f"{name} is in {folder}" if folder else f"{name} needs no files")
