"""Who may look, and what a page may do in their browser.

A request is known by Airflow's own token, in its cookie or as a bearer, and by Airflow's own permissions. Without one it gets nothing: a
page that was opened by itself leads to the login, all else is refused. Pages are served from Airflow's own origin, so their policy is
strict: nothing is loaded from elsewhere, nothing is sent anywhere, and the only scripts are the ones of the charts.
"""

from __future__ import annotations

from urllib.parse import quote

from airflow.api_fastapi.app import API_ROOT_PATH
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, RedirectResponse, Response

DAG = "chaos_experiment"
may_look = requires_access_dag("GET", DagAccessEntity.RUN, DAG)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:; form-action 'none'; base-uri 'none'; frame-ancestors 'self'"
CHARTS = f"{_POLICY}; script-src 'self'"  # of our pages: the library is a file of ours
REPORT = f"{_POLICY}; script-src 'unsafe-inline'"  # the report has its own policy as well, which names the two scripts in it
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}


def refuse(request: Request, error: HTTPException) -> Response:
    """Somebody who is not known and asked for a page by itself is led to the login, and back."""
    if error.status_code == 401 and request.headers.get("sec-fetch-dest") == "document":
        here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{API_ROOT_PATH}api/v2/auth/login?next={quote(here, safe='')}")
    return PlainTextResponse(str(error.detail), error.status_code)
