"""A task's links to what its run made: where a web server serves the state folder, or behind Airflow's own login (``plugin``)."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

PREFIX = "/streamproof-results"


def pages(conn_id: str) -> str:
    """The address, as a browser asks for it, below which the plugin serves what a connection's state folder holds. Airflow may be served
    below a path, which its setting ``[api] base_url`` ends with."""
    base = str(conf.get("api", "base_url", fallback="") or "").rstrip("/")
    return f"{urlsplit(base).path}{PREFIX}/{quote(conn_id, safe='')}"


class _ResultLink(BaseOperatorLink):
    """A page in the folder that the operator's command made; no link before there is one."""

    page = ""

    @property
    def xcom_key(self) -> str:
        return f"_link_{type(self).__name__}"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{operator.results}/{self.page}" if operator.results else ""


class ReportLink(_ResultLink):
    name = "Report"
    page = "report.html"


class DataDocsLink(_ResultLink):
    name = "Data Docs"
    page = "expectations/data_docs/index.html"


class MatrixLink(_ResultLink):
    name = "Matrix"
    page = "matrix.html"
