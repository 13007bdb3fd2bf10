"""The files of runs. A run is asked for by its name, a file by its path in the run's folder, and nothing outside that folder is served."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

from streamproof import settings
from streamproof.airflow.pages import access

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
TYPES = {".html": "text/html", ".csv": "text/csv"}
TEXT = frozenset({".json", ".jsonl", ".yaml", ".yml", ".log", ".txt", ""})
REPORT = "report.html"
DATA_DOCS = "expectations/data_docs/index.html"
BAR = '<nav style="padding: .5rem 1rem"><a href="../../../">Streaming reliability</a> › <a href="./">files of this run</a></nav>'


def folder(run: str) -> Path:
    """The folder of a run. Raises 404 when there is none of that name."""
    runs = settings.runs().resolve()
    path = runs / run
    if not NAME.fullmatch(run) or path.resolve() != path or not (path / "experiment.yaml").is_file():
        raise HTTPException(404, "There is no such run; it may have been pruned.")
    return path


def locate(run: str, path: str) -> Path:
    """A file or folder of a run, ``path`` being relative to the run's folder. Raises 404 when it is not in there."""
    run_folder = folder(run)
    try:
        target = (run_folder / path).resolve()
    except ValueError:  # a null character, which no path has
        raise HTTPException(404, "There is no such file.") from None
    if not target.is_relative_to(run_folder) or not (target.is_file() or target.is_dir()):
        raise HTTPException(404, "There is no such file in this run's folder.")
    return target


def serve(path: Path, *, report: bool = False) -> Response:
    """A file as a browser shows it: pages and text in place, all else to be saved. Scripts run in the report alone."""
    if report:
        # In Airflow's frame there is no other way back.
        page = re.sub(r"<body>", lambda body: body[0] + BAR, path.read_text(), count=1)
        return HTMLResponse(page, headers={"Content-Security-Policy": access.REPORT})
    if path.suffix in TYPES:
        return FileResponse(path, media_type=TYPES[path.suffix])
    if path.suffix in TEXT:
        return FileResponse(path, media_type="text/plain; charset=utf-8")
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


def exists(run: str) -> bool:
    """Whether the report of a run can be opened."""
    return bool(NAME.fullmatch(run)) and (settings.runs() / run / REPORT).is_file()
