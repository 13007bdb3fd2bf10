"""The web app of the plugin. Every route asks first who is there; none changes anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote, urlencode

from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response

from streamproof import settings
from streamproof.airflow.pages import access, files
from streamproof.errors import BadInput
from streamproof.history import page
from streamproof.history.matrix import matrix
from streamproof.history.record import Cell, HistoryError, Run
from streamproof.history.store import Wanted
from streamproof.report import vega
from streamproof.report.pages import environment
from streamproof.run import recording

HERE = Path(__file__).parent
ASSETS = {"icon.svg": "image/svg+xml", "icon-dark.svg": "image/svg+xml"}
KEPT = {"Cache-Control": "private, max-age=3600"}
SCRIPTS = ("assets/vega.js", "assets/charts.js")

app = FastAPI(dependencies=[Depends(access.may_look)], docs_url=None, redoc_url=None, openapi_url=None)
app.exception_handler(HTTPException)(access.refuse)
pages = environment(HERE / "templates")


@app.middleware("http")
async def _headers(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    for name, value in access.HEADERS.items():
        response.headers.setdefault(name, value)
    return response


@app.exception_handler(HistoryError)
@app.exception_handler(BadInput)
def _no_history(request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), 503)


@app.get("/")
def overview() -> Response:
    with recording.opened() as store:
        runs = store.runs()
    return _page(page.html(matrix(runs), _report, _cell))


@app.get("/cell")
def cell(pipeline: str, strategy: str, guarantee: str, faults: str) -> Response:
    with recording.opened() as store:
        runs = store.runs(Wanted(cell=Cell(pipeline, strategy, guarantee, faults)))
    if not runs:
        raise HTTPException(404, "There is no run of such a cell in the history.")
    return _page(page.cell_html(runs, _report, "./", SCRIPTS))


@app.get("/runs/{run}/report")
def report(run: str) -> Response:
    if not files.exists(run):
        files.folder(run)
        raise HTTPException(404, "This run has no report yet: it is written when the run has ended.")
    return RedirectResponse(f"files/{files.REPORT}")


@app.get("/runs/{run}/data-docs")
def data_docs(run: str) -> Response:
    if not (files.folder(run) / files.DATA_DOCS).is_file():
        raise HTTPException(404, "This run has no Data Docs yet: its stage `expect` writes them.")
    return RedirectResponse(f"files/{files.DATA_DOCS}")


@app.get("/runs/{run}/files")
def without_slash() -> Response:
    return RedirectResponse("files/")


@app.get("/runs/{run}/files/{path:path}")
def run_files(request: Request, run: str, path: str) -> Response:
    target = files.locate(run, path)
    if target.is_file():
        return files.serve(target, report=path == files.REPORT)
    if path and not path.endswith("/"):
        return RedirectResponse(f"{quote(target.name)}/")
    entries = sorted(target.iterdir(), key=lambda entry: (entry.is_file(), entry.name))
    rows = [
        {"name": entry.name, "link": quote(entry.name) + "/" * entry.is_dir(), "size": entry.stat().st_size if entry.is_file() else None}
        for entry in entries
        if entry.exists()  # a link may lead nowhere
    ]
    up = "../" * (path.rstrip("/").count("/") + 4 if path else 3)
    return _page(pages.get_template("files.html.j2").render(run=run, path=path.rstrip("/"), rows=rows, home=up, report=files.exists(run)))


@app.get("/assets/{name}")
def assets(name: str) -> Response:
    if name == "vega.js":
        return Response(vega.library(settings.cache()), headers=KEPT, media_type="text/javascript")
    if name == "charts.js":
        return Response(vega.START, headers=KEPT, media_type="text/javascript")
    if name not in ASSETS:
        raise HTTPException(404, "There is no such file.")
    return FileResponse(HERE / "assets" / name, headers=KEPT, media_type=ASSETS[name])


def _page(text: str) -> Response:
    return HTMLResponse(text, headers={"Content-Security-Policy": access.CHARTS})


def _report(run: Run) -> str | None:
    return f"runs/{quote(run.run)}/report" if files.exists(run.run) else None


def _cell(cell: Cell) -> str:
    return f"cell?{urlencode({name: getattr(cell, name) for name in ('pipeline', 'strategy', 'guarantee', 'faults')})}"
