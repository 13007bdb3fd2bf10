"""The operators of a run: each performs one stage on the run's folder."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from streamproof.airflow.assets import VERDICT, extra
from streamproof.airflow.links import LINKS
from streamproof.evidence.folder import RunFolder
from streamproof.evidence.journal import Aborted, Restored, StageStarted
from streamproof.evidence.stages import NEED_THE_TESTBED, REPORT, RESTORE, TOGETHER

WAIT_S = 900.0
LOOK_S = 1.0
RESTART_S = 60.0
TRY = "-try"
log = logging.getLogger("streamproof.airflow.operators")
logging.getLogger("kafka").setLevel(logging.WARNING)  # what a run does is told in a task's log, not every connection of its client


class StageOperator(BaseOperator):
    """Performs one stage of a run. ``folder`` is the run's folder (templated).

    When the task is killed (the run was marked failed, a timeout, the task was cleared) the whole run is aborted and the testbed restored.
    """

    template_fields = ("folder",)
    operator_extra_links = LINKS

    def __init__(self, *, stage: str, folder: str, **options: Any) -> None:
        super().__init__(task_id=stage, **options)
        self.stage = stage
        self.folder = folder

    def execute(self, context: Context) -> Any:
        from streamproof.jobs.context import RunEnded
        from streamproof.run import stages

        folder = RunFolder.open(self.folder)
        if self.stage in NEED_THE_TESTBED and folder.journal.last(Restored) is not None:
            raise AirflowFailException(
                f"run {folder.name} has given the testbed back: it cannot do {self.stage} again. "
                "Clear `prepare` and all that comes after it, which makes a new run."
            )
        try:
            with attended(folder):
                stages.perform(self.stage, folder)
        except RunEnded:
            self._be_ended(context)
            raise

    def _be_ended(self, context: Context) -> None:
        """Of a task that was cleared: wait until Airflow ends it. Only then it is run again; one that ends by itself before has failed."""
        run_id = context["dag_run"].run_id
        states = context["ti"].get_task_states(dag_id=self.dag_id, task_ids=[self.task_id], run_ids=[run_id])
        if "restarting" in states.get(run_id, {}).values():
            threading.Event().wait(RESTART_S)

    def on_kill(self) -> None:
        from streamproof.run import stages

        if self.folder and Path(self.folder).is_dir():
            stages.abort(RunFolder.open(self.folder), f"its task {self.stage} was stopped in Airflow")


class PrepareOperator(StageOperator):
    """Validates the form, makes the run's folder, waits for the testbed, prepares the run. Returns the folder.

    The folder has the DAG run's name, so that a repeated task finds it again. Of a run that has begun only the judgement can be repeated;
    when its three stages that go side by side are to be done again, another run is made.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(stage="prepare", folder="", **options)

    def execute(self, context: Context) -> str:
        from pydantic import ValidationError

        from streamproof.airflow.form import validate
        from streamproof.errors import BadInput
        from streamproof.experiment.reading import explain
        from streamproof.run import lock, stages

        dag_run = context["dag_run"]
        try:
            form = validate({**context["params"], **(dag_run.conf or {})})
            experiment = form.experiment()
        except BadInput as error:
            raise AirflowFailException(str(error)) from None
        except ValidationError as error:
            raise AirflowFailException(explain(error, "the form")) from None
        name, last = plain(dag_run.run_id), RunFolder(newest(plain(dag_run.run_id)))
        if not _begun(last):
            name = last.name
        elif self._all_again(context):
            stages.abort(last, "it was cleared in Airflow")  # unless it has ended
            name = f"{name}{TRY}{1 + int(last.name.removeprefix(name).removeprefix(TRY) or 1)}"
        else:
            log.info("run %s has begun: it is not prepared again", last.name)
            self.folder = str(last.path)
            return self.folder
        lock.wait(name, WAIT_S, log.info)
        folder = stages.create(experiment, name)
        self.folder = str(folder.path)
        stages.perform("prepare", folder)
        return str(folder.path)

    def _all_again(self, context: Context) -> bool:
        """Whether all stages of the run itself were cleared with this one; one that was at work then may not have been stopped yet."""
        run_id = context["dag_run"].run_id
        states = context["ti"].get_task_states(dag_id=self.dag_id, task_ids=list(TOGETHER), run_ids=[run_id])
        return all(state in (None, "restarting") for state in states.get(run_id, {}).values())


class ReportOperator(StageOperator):
    """Writes the report, and tells who is scheduled on verdicts of this one."""

    def __init__(self, *, folder: str, **options: Any) -> None:
        super().__init__(stage=REPORT, folder=folder, outlets=[VERDICT], **options)

    def execute(self, context: Context) -> None:
        from streamproof.verdict.verdict import Verdict

        super().execute(context)
        folder = RunFolder.open(self.folder)
        context["outlet_events"][VERDICT].extra.update(extra(Verdict.read(folder)))


class RestoreOperator(StageOperator):
    """Restores the testbed, and fails when the run has no verdict or one that was not expected: the DAG run is then red."""

    def __init__(self, *, folder: str, **options: Any) -> None:
        super().__init__(stage=RESTORE, folder=folder, **options)

    def execute(self, context: Context) -> None:
        from streamproof.verdict.verdict import Verdict

        super().execute(context)
        verdict = Verdict.read(RunFolder.open(self.folder))
        sentence = f"{verdict.outcome}: {verdict.reason}"
        if not verdict.as_expected:
            raise AirflowFailException(sentence)
        log.info("%s", sentence)


@contextlib.contextmanager
def attended(folder: RunFolder) -> Iterator[None]:
    """Abort the run when the process of Airflow that this one reports to is gone: nobody would learn how the task ends."""
    parent, done = os.getppid(), threading.Event()

    def look() -> None:
        while not done.wait(LOOK_S):
            if os.getppid() != parent and folder.experiment.is_file():
                folder.journal.append(Aborted(reason="the process of Airflow that its task reported to is gone"))
                return

    watcher = threading.Thread(target=look, name="attended", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def plain(run_id: str) -> str:
    """A DAG run's id as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", run_id)


def _begun(folder: RunFolder) -> bool:
    """Whether more than its preparation was begun."""
    events = folder.journal.all(StageStarted, Restored, Aborted)
    return any(not isinstance(event, StageStarted) or event.stage in TOGETHER for event in events)


def newest(name: str) -> Path:
    """The folder of a DAG run's newest run: it has several when `prepare` was cleared. Where the first would be when there is none."""
    from streamproof import settings

    folder, number = settings.runs() / name, 2
    while (following := settings.runs() / f"{name}{TRY}{number}").exists():
        folder, number = following, number + 1
    return folder
