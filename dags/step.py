"""The operators of a run: each performs one step on the run's folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException


class StepOperator(BaseOperator):
    """Performs one step of a run. ``folder`` is the run's folder (templated).

    When the task is killed (the run was marked failed, a timeout, the task was cleared) the whole run is aborted and the testbed restored.
    """

    template_fields = ("folder",)

    def __init__(self, *, step: str, folder: str, **options: Any) -> None:
        super().__init__(task_id=step, **options)
        self.step = step
        self.folder = folder

    def execute(self, context: Context) -> Any:
        from chaos import steps
        from delivery.folder import RunFolder

        steps.perform(self.step, RunFolder.open(self.folder))

    def on_kill(self) -> None:
        from chaos import steps
        from delivery.folder import RunFolder

        if Path(self.folder).is_dir():
            steps.abort(RunFolder.open(self.folder), f"its task {self.step} was stopped in Airflow")


class PrepareOperator(StepOperator):
    """Validates the form, makes the run's folder (keyed on the DAG run, so that a repeated task finds it again), prepares the run.

    Returns the folder.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(step="prepare", folder="", **options)

    def execute(self, context: Context) -> str:
        from pydantic import ValidationError

        from chaos import steps
        from chaos.experiment import BadInput, explain
        from dags.form import validate
        from testbed import settings

        dag_run = context["dag_run"]
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", dag_run.run_id)
        try:
            form = validate({**context["params"], **(dag_run.conf or {})})
            experiment = form.experiment()
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        except ValidationError as error:
            raise AirflowFailException(explain(error, "the form")) from None
        self.folder = str(settings.runs() / name)
        folder = steps.create(experiment, name)
        steps.perform("prepare", folder)
        return str(folder.path)


class RestoreOperator(StepOperator):
    """Restores the testbed, and fails when the run has no verdict or one that was not expected: the DAG run is then red."""

    def __init__(self, *, folder: str, **options: Any) -> None:
        super().__init__(step="restore", folder=folder, **options)

    def execute(self, context: Context) -> None:
        from delivery.folder import RunFolder

        super().execute(context)
        folder = RunFolder.open(self.folder)
        verdict = folder.read_json(folder.verdict)
        if not verdict["as_expected"]:
            raise AirflowFailException(f"{verdict['outcome']}: {verdict['reason']}")
