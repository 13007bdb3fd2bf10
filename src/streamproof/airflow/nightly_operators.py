"""The operators of a nightly run: its plan, one scenario with all stages of its run, the comparison, and the last word."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from streamproof.airflow.assets import NIGHTLY_RUN, VERDICT, extra
from streamproof.airflow.links import LINKS
from streamproof.airflow.operators import WAIT_S, attended, plain
from streamproof.evidence.folder import RunFolder
from streamproof.verdict.decide import RunOutcome

MATRIX = "STREAMPROOF_NIGHTLY"
log = logging.getLogger("streamproof.airflow.nightly_operators")


def matrix_file() -> Path:
    """The matrix of the nightly runs: the repository's, or what the environment names."""
    from streamproof import settings

    return Path(os.environ.get(MATRIX) or settings.experiments() / "matrices" / "nightly.yaml")


class PlanOperator(BaseOperator):
    """Reads the matrix and begins the nightly run. Returns its scenarios."""

    def execute(self, context: Context) -> list[dict[str, Any]]:
        from streamproof.errors import BadInput
        from streamproof.run.nightly import NightlyRun

        try:
            scenarios = NightlyRun.named(plain(context["dag_run"].run_id)).plan(matrix_file())
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        return [{"number": scenario.number, "name": scenario.name} for scenario in scenarios]


class ScenarioOperator(BaseOperator):
    """A scenario: all stages of one run in this process, as ``streamproof run`` does them. Fails when the verdict was not expected.

    Nine tasks would take longer to start than a run takes. A SIGTERM (the task or its DAG run was marked, or cleared) aborts the run and
    restores the testbed; so does a timeout. A SIGKILL leaves both to the watchdog.
    """

    template_fields = ("scenario",)
    operator_extra_links = LINKS

    def __init__(self, *, scenario: dict[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self.scenario = scenario
        self.folder = ""

    def execute(self, context: Context) -> str:
        from streamproof import settings
        from streamproof.run import lock, runner
        from streamproof.run.nightly import NightlyRun
        from streamproof.verdict.verdict import Verdict

        nightly_run = NightlyRun.named(plain(context["dag_run"].run_id))
        scenario, attempt = nightly_run.scenario(self.scenario["number"]), context["ti"].try_number
        name = nightly_run.run(scenario, attempt)
        try:
            lock.wait(name, WAIT_S, log.info)
        except lock.TestbedBusy as busy:
            nightly_run.leave(scenario, str(busy))
            raise AirflowFailException(str(busy)) from None
        if attempt == 1 and nightly_run.over():
            nightly_run.leave(scenario, "the nightly run's time was over before its turn")
            raise AirflowSkipException(f"{scenario.name} is not run: the nightly run's time is over")
        nightly_run.begin(scenario, name)
        self.folder = str(settings.runs() / name)
        with attended(RunFolder(self.folder)):
            folder = runner.run(scenario.experiment, name)
        verdict = Verdict.read(folder)
        nightly_run.end(scenario, name)
        if not verdict.as_expected:
            raise AirflowFailException(f"{verdict.outcome}: {verdict.reason}")
        return name

    def on_kill(self) -> None:
        from streamproof.run import stages

        if self.folder and RunFolder(self.folder).experiment.is_file():
            stages.abort(RunFolder(self.folder), "its task was stopped in Airflow")


class TellOperator(BaseOperator):
    """Tells who is scheduled on verdicts of a scenario's. A task of its own: Airflow passes on no event of one that fails."""

    template_fields = ("scenario",)

    def __init__(self, *, scenario: dict[str, Any], **options: Any) -> None:
        super().__init__(outlets=[VERDICT], **options)
        self.scenario = scenario

    def execute(self, context: Context) -> None:
        from streamproof.run.nightly import NightlyRun

        verdict = NightlyRun.named(plain(context["dag_run"].run_id)).verdict(self.scenario["number"])
        if verdict is None:
            raise AirflowSkipException(f"{self.scenario['name']} has no verdict on the job")
        context["outlet_events"][VERDICT].extra.update(extra(verdict))


class CompareOperator(BaseOperator):
    """Compares with earlier nightly runs, writes JUnit XML and the page. It does not fail for a scenario: the task `summary` does."""

    def __init__(self, **options: Any) -> None:
        super().__init__(outlets=[NIGHTLY_RUN], **options)

    def execute(self, context: Context) -> None:
        from streamproof.run.nightly import NightlyRun

        summary = NightlyRun.named(plain(context["dag_run"].run_id)).summarise()
        for scenario in summary.scenarios:
            log.info("%s", scenario.line)
        log.info("%s", summary.folder)
        context["outlet_events"][NIGHTLY_RUN].extra.update(
            nightly_run=summary.nightly_run, red=summary.red, headline=summary.headline, folder=summary.folder
        )


class SummaryOperator(BaseOperator):
    """The nightly run's last word: fails, and says what changed, when something was not as expected, or not proved."""

    def execute(self, context: Context) -> str:
        from streamproof.run.nightly import NightlyRun

        nightly_run = NightlyRun.named(plain(context["dag_run"].run_id))
        summary = nightly_run.summary()
        if summary is None:
            raise AirflowFailException(f"{nightly_run.path} has no summary: see the tasks `plan` and `compare`")
        if summary.outcome is not RunOutcome.PASSED:
            raise AirflowFailException(summary.text)
        log.info("%s", summary.text)
        return summary.headline
