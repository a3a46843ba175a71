"""Makes docs/studies of finished runs: `python scripts/publish_studies.py [RUNS]`.

With RUNS, a folder of run folders, their records are taken over first, of runs that are not finished the trials that
are; without, the pages are made again from the records that are there.
"""

import sys
from pathlib import Path

from tangentkit.studies.publication import finished_runs, keep_records, keep_unfinished, publish

DOCS = Path(__file__).parents[1] / "docs" / "studies"
RECORDS, PAGES = DOCS / "records", DOCS / "pages" / "claims"

if __name__ == "__main__":
    if len(sys.argv) > 1:
        source = Path(sys.argv[1])
        finished = finished_runs(source)
        keep_records(source, finished, RECORDS)
        begun = {path.parent.name for path in source.glob("*/config.json")}
        keep_unfinished(source, begun - set(finished), RECORDS)
    runs = finished_runs(RECORDS)
    publish(runs, PAGES)
    print(
        f"{len(runs)} studies, {sum(len(run.result.claims) for run in runs.values())} claims: {PAGES / 'index.html'}"
    )
