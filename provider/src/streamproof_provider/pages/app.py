"""Serves the reports of runs and the matrices of sweeps to those that may see the runs of DAGs. It changes nothing.

``/CONNECTION/runs/RUN/FILE`` and ``/CONNECTION/sweeps/SWEEP/FILE``, of the connection's state folder. The API server must see that folder;
where it does not, name a web server that does (``state_url`` of the connection). Of a run only what people look at is served: the report,
its table of records, and the Data Docs. The pages come from Airflow's own origin, so their policy is strict: nothing is loaded from
elsewhere, nothing is sent anywhere, and only the scripts that are in the report run.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from airflow.api_fastapi.app import API_ROOT_PATH
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response

from streamproof_provider.hooks.streamproof import StreamproofHook

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
DATA_DOCS = "expectations/data_docs"
FILES = {"runs": ("report.html", "anomalies.csv", "experiment.yaml"), "sweeps": ("matrix.html", "matrix.md", "compact.md", "matrix.json")}
SCRIPTED = ("report.html", "matrix.html")
TYPES = {".html": "text/html", ".csv": "text/csv", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "private, no-cache"}

may_look = requires_access_dag("GET", DagAccessEntity.RUN)
app = FastAPI(dependencies=[Depends(may_look)], docs_url=None, redoc_url=None, openapi_url=None)


@app.exception_handler(HTTPException)
def refuse(request: Request, error: HTTPException) -> Response:
    """Somebody who is not known and asked for a page by itself is led to the login, and back."""
    if error.status_code == 401 and request.headers.get("sec-fetch-dest") == "document":
        return RedirectResponse(f"{API_ROOT_PATH}api/v2/auth/login?next={quote(request.url.path, safe='')}")
    return PlainTextResponse(str(error.detail), error.status_code)


@app.get("/{conn_id}/{kind}/{name}/{path:path}")
def result(conn_id: str, kind: str, name: str, path: str) -> Response:
    file = _file(conn_id, kind, name, path)
    scripts = "; script-src 'unsafe-inline'" if path in SCRIPTED else ""
    media_type = TYPES.get(file.suffix, "text/plain; charset=utf-8")
    return FileResponse(file, media_type=media_type, headers={**_HEADERS, "Content-Security-Policy": f"{_POLICY}{scripts}"})


def _file(conn_id: str, kind: str, name: str, path: str) -> Path:
    """Raises 404 for everything that is no result."""
    if kind not in FILES or not NAME.fullmatch(name) or "\0" in path:
        raise HTTPException(404, "There is no such result.")
    try:
        folder = (StreamproofHook(conn_id).state_folder / kind / name).resolve()
    except AirflowException:
        raise HTTPException(404, f"There is no connection {conn_id!r}.") from None
    target = (folder / path).resolve()
    docs = folder / DATA_DOCS
    if path not in FILES[kind] and not (kind == "runs" and target.is_relative_to(docs)):
        raise HTTPException(404, "There is no such result.")
    if not target.is_relative_to(folder) or not target.is_file():
        raise HTTPException(404, "There is no such file on the API server: the run may have been pruned, or was made on another machine.")
    return target
