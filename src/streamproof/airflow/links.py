"""Where the pages of runs are, and a task's links to what its run made. Airflow's own login is before the pages (``airflow.plugin``).

Airflow may be served below a path, which its setting ``[api] base_url`` ends with: every link of ours begins with that path.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

PREFIX = "/streamproof"


def _base_url() -> str:
    return str(conf.get("api", "base_url", fallback="") or "").rstrip("/")


def pages() -> str:
    """The path of our pages, as a browser asks for it."""
    return f"{urlsplit(_base_url()).path}{PREFIX}"


def dag_run(dag: str, run_id: str) -> str | None:
    """The address of a DAG run, for somebody who is not in Airflow. None where Airflow was not told its own."""
    base = _base_url()
    return f"{base}/dags/{dag}/runs/{quote(run_id, safe='')}" if urlsplit(base).netloc else None


class _RunLink(BaseOperatorLink):
    """A page of the run whose folder the operator worked on; no link before there is one."""

    page = ""

    @property
    def xcom_key(self) -> str:
        return f"_link_{type(self).__name__}"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{pages()}/runs/{Path(operator.folder).name}/{self.page}" if operator.folder else ""


class ReportLink(_RunLink):
    name = "Report"
    page = "report"


class DataDocsLink(_RunLink):
    name = "Data Docs"
    page = "data-docs"


class FilesLink(_RunLink):
    name = "Run's folder"
    page = "files/"


LINKS = (ReportLink(), DataDocsLink(), FilesLink())
