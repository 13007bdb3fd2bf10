"""Links from a task to what its run made. The pages behind them are served behind Airflow's own login (``dags/plugins``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperatorLink

RUNS = "/streamproof/runs"


class _RunLink(BaseOperatorLink):
    """A page of the run whose folder the operator worked on; no link before there is one."""

    page = ""

    @property
    def xcom_key(self) -> str:
        return f"_link_{type(self).__name__}"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        return f"{RUNS}/{Path(operator.folder).name}/{self.page}" if operator.folder else ""


class ReportLink(_RunLink):
    name = "Report"
    page = "report"


class DataDocsLink(_RunLink):
    name = "Data Docs"
    page = "data-docs/"


class FilesLink(_RunLink):
    name = "Run's folder"
    page = "files/"


LINKS = (ReportLink(), DataDocsLink(), FilesLink())
