"""The operators of a night: its plan, one cell with all stages of its run, the comparison, and the last word."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streamproof.airflow.assets import NIGHT, VERDICT, extra
from streamproof.airflow.links import LINKS
from streamproof.airflow.operators import WAIT_S, attended, plain
from streamproof.evidence.folder import RunFolder

MATRIX = "STREAMPROOF_NIGHTLY"
log = logging.getLogger("streamproof.airflow.nightly_operators")


def matrix_file() -> Path:
    """The matrix of the nights: the repository's, or what the environment names."""
    from streamproof import settings

    return Path(os.environ.get(MATRIX) or settings.experiments() / "matrices" / "nightly.yaml")


class PlanOperator(BaseOperator):
    """Reads the matrix and begins the night. Returns its cells."""

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from streamproof.errors import BadInput
        from streamproof.run.nightly import Night

        try:
            cells = Night.named(plain(context["dag_run"].run_id)).plan(matrix_file())
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        return [{"number": cell.number, "name": cell.name} for cell in cells]


class CellOperator(BaseOperator):
    """A cell: all stages of one run in this process, as ``streamproof run`` does them. Fails when the verdict was not expected.

    Nine tasks would take longer to start than a run takes. A SIGTERM (the task or its DAG run was marked, or cleared) aborts the run and
    restores the testbed; so does a timeout. A SIGKILL leaves both to the watchdog.
    """

    template_fields = ("cell",)
    operator_extra_links = LINKS

    def __init__(self, *, cell: dict[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self.cell = cell
        self.folder = ""

    def execute(self, context: Context) -> str:
        from streamproof import settings
        from streamproof.run import lock, runner
        from streamproof.run.nightly import Night
        from streamproof.verdict.verdict import Verdict

        night = Night.named(plain(context["dag_run"].run_id))
        cell, attempt = night.cell(self.cell["number"]), context["ti"].try_number
        name = night.run(cell, attempt)
        try:
            lock.wait(name, WAIT_S, log.info)
        except lock.TestbedBusy as busy:
            night.leave(cell, str(busy))
            raise AirflowFailException(str(busy)) from None
        if attempt == 1 and night.over():
            night.leave(cell, "the night's time was over before its turn")
            raise AirflowSkipException(f"{cell.name} is not run: the night's time is over")
        night.begin(cell, name)
        self.folder = str(settings.runs() / name)
        with attended(RunFolder(self.folder)):
            folder = runner.run(cell.experiment, name)
        verdict = Verdict.read(folder)
        night.end(cell, name)
        if not verdict.as_expected:
            raise AirflowFailException(f"{verdict.outcome}: {verdict.reason}")
        return name

    def on_kill(self) -> None:
        from streamproof.run import stages

        if self.folder and RunFolder(self.folder).experiment.is_file():
            stages.abort(RunFolder(self.folder), "its task was stopped in Airflow")


class TellOperator(BaseOperator):
    """Tells who is scheduled on verdicts of a cell's. A task of its own: Airflow passes on no event of one that fails."""

    template_fields = ("cell",)

    def __init__(self, *, cell: dict[str, Any], **options: Any) -> None:
        super().__init__(outlets=[VERDICT], **options)
        self.cell = cell

    def execute(self, context: Context) -> None:
        from streamproof.run.nightly import Night

        verdict = Night.named(plain(context["dag_run"].run_id)).verdict(self.cell["number"])
        if verdict is None:
            raise AirflowSkipException(f"{self.cell['name']} has no verdict on the job")
        context["outlet_events"][VERDICT].extra.update(extra(verdict))


class CompareOperator(BaseOperator):
    """Compares with the nights before, writes JUnit XML and the morning's page. Not red when a cell is: that is for the summary to say."""

    def __init__(self, **options: Any) -> None:
        super().__init__(outlets=[NIGHT], **options)

    def execute(self, context: Context) -> None:
        from streamproof.run.nightly import Night

        summary = Night.named(plain(context["dag_run"].run_id)).summarise()
        for cell in summary.cells:
            log.info("%s", cell.line)
        log.info("%s", summary.folder)
        context["outlet_events"][NIGHT].extra.update(night=summary.night, red=summary.red, headline=summary.headline, folder=summary.folder)


class SummaryOperator(BaseOperator):
    """The night's last word: fails, and says what changed, when something was not as expected."""

    def execute(self, context: Context) -> str:
        from streamproof.run.nightly import Night

        night = Night.named(plain(context["dag_run"].run_id))
        summary = night.summary()
        if summary is None:
            raise AirflowFailException(f"{night.path} has no summary: see the tasks `plan` and `compare`")
        if summary.red:
            raise AirflowFailException(summary.text)
        log.info("%s", summary.text)
        return summary.headline
