"""Operators that run streamproof's commands and say by the task's state how they ended.

A task fails for good on bad input and on a broken guarantee: another try would show the same. It may be tried again when nothing was shown
(INCONCLUSIVE, ERROR), or when somebody else stopped the run.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, BaseOperatorLink, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from streamproof_provider.assets import VERDICT, extra
from streamproof_provider.hooks.streamproof import Command, Done, StreamproofHook, ended
from streamproof_provider.links.streamproof import DataDocsLink, MatrixLink, ReportLink, pages

BAD_INPUT = 2
WAIT_S = 1800.0
SHOWN_RECORDS = 10
JUDGED = ("PASSED", "FAILED", "INCONCLUSIVE")


class _StreamproofOperator(BaseOperator):
    """Runs one command. ``results`` is the address of the folder that it made, once there is one."""

    ui_color = "#e8f0e4"

    def __init__(self, *, streamproof_conn_id: str = StreamproofHook.default_conn_name, wait_s: float = WAIT_S, **options: Any) -> None:
        super().__init__(**options)
        self.streamproof_conn_id = streamproof_conn_id
        self.wait_s = wait_s
        self.results = ""
        self._command: Command | None = None
        self._killed = False

    @property
    def hook(self) -> StreamproofHook:
        return StreamproofHook(self.streamproof_conn_id)

    def on_kill(self) -> None:
        """Airflow gives a task 5 s from here; the command restores the testbed also when the task is gone."""
        self._killed = True
        if self._command is not None:
            self._command.stop()

    def _perform(self, hook: StreamproofHook, *words: str) -> Done:
        """Run a command to its end. Raises AirflowFailException for bad input."""
        with ended(hook.start(*words, "--wait", str(self.wait_s))) as self._command:
            if self._killed:  # before there was a command
                self._command.stop()
            done = self._command.wait()
        if done.document is not None:
            self.results = self._address(hook, Path(done.document["folder"]))
        if done.code == BAD_INPUT:
            raise AirflowFailException(done.error)
        return done

    def _address(self, hook: StreamproofHook, folder: Path) -> str:
        base = hook.installation.state_url or pages(self.streamproof_conn_id)
        return f"{base}/{folder.parent.name}/{folder.name}"


class StreamproofRunOperator(_StreamproofOperator):
    """Runs an experiment. The task is red unless the verdict is as expected, and its log names the first lost or doubled records.

    Returns what the verdict asset's event holds, and ``folder``, the run's folder on the worker.

    :param experiment: a YAML file, absolute or below the project's folder (templated), or what such a file would hold.
    :param seed: instead of the experiment's own.
    :param baseline: compare it with the same run without faults, which runs first.
    :param fail_on_verdict: with False a run that FAILED or is INCONCLUSIVE leaves the task green; a later task decides by what it returns.
    :param wait_s: how long to wait for the testbed while another run holds it.
    :param streamproof_conn_id: the connection that says where streamproof is.
    """

    template_fields: Sequence[str] = ("experiment", "seed", "streamproof_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"experiment": "yaml"}
    operator_extra_links: Sequence[BaseOperatorLink] = (ReportLink(), DataDocsLink())

    def __init__(
        self,
        *,
        experiment: str | dict[str, Any],
        seed: int | str | None = None,
        baseline: bool = False,
        fail_on_verdict: bool = True,
        outlets: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        super().__init__(outlets=[*outlets, VERDICT], **options)
        self.experiment = experiment
        self.seed = seed
        self.baseline = baseline
        self.fail_on_verdict = fail_on_verdict

    def execute(self, context: Context) -> dict[str, Any]:
        with _file(self.experiment) as path:
            options = [] if self.seed is None else ["--seed", str(self.seed)]
            options += ["--baseline"] if self.baseline else []
            done = self._perform(self.hook, "run", path, *options)
        verdict = done.document
        if verdict is None:
            raise AirflowException(done.error)
        self._judge(verdict)
        context["outlet_events"][VERDICT].extra.update(extra(verdict))
        return {**extra(verdict), "folder": verdict["folder"]}

    def _judge(self, verdict: dict[str, Any]) -> None:
        """Log the verdict with the blame of the first records. Raises AirflowException unless the task is to succeed."""
        records = verdict["records"]
        for record in records[:SHOWN_RECORDS]:
            self.log.error("%s: %s", record["anomaly"], record["blame"])
        if len(records) > SHOWN_RECORDS:
            self.log.error("... and more; all are in %s", Path(verdict["folder"], "reconciliation.parquet"))
        sentence = f"{verdict['outcome']}: {verdict['reason']}"
        if not verdict["as_expected"] and (self.fail_on_verdict or verdict["outcome"] not in JUDGED):
            raise (AirflowFailException if verdict["outcome"] == "FAILED" else AirflowException)(sentence)
        self.log.info("%s", sentence)


class StreamproofSweepOperator(_StreamproofOperator):
    """Crashes commit strategies at each step of their protocols. The task is red when a prediction was wrong or a crash could not be shown.

    Returns ``folder``, the sweep's folder on the worker, ``wrong``, and how many runs there were.

    :param strategies: those to crash (templated); all when absent.
    :param steps: only crashes at these steps (templated).
    :param seed: of every run.
    :param records: of every run.
    :param wait_s: how long to wait for the testbed while another run holds it.
    :param streamproof_conn_id: the connection that says where streamproof is.
    """

    template_fields: Sequence[str] = ("strategies", "steps", "streamproof_conn_id")
    operator_extra_links: Sequence[BaseOperatorLink] = (MatrixLink(),)

    def __init__(
        self,
        *,
        strategies: Sequence[str] = (),
        steps: Sequence[str] = (),
        seed: int | None = None,
        records: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.strategies = strategies
        self.steps = steps
        self.seed = seed
        self.records = records

    def execute(self, context: Context) -> dict[str, Any]:
        words = [*self.strategies, *(word for step in self.steps for word in ("--step", step))]
        for name, value in (("--seed", self.seed), ("--records", self.records)):
            words += [] if value is None else [name, str(value)]
        done = self._perform(self.hook, "sweep", *words)
        sweep = done.document
        if sweep is None:
            raise AirflowException(done.error)
        results = sweep["results"]
        wrong = [_sentence(result) for result in results if not result["as_predicted"]]
        if done.code != 0:
            raise AirflowException("\n".join([f"{len(wrong)} of {len(results)} not as predicted", *wrong]))
        self.log.info("%d of %d as predicted", len(results), len(results))
        return {"folder": sweep["folder"], "wrong": len(wrong), "runs": len(results)}


def _sentence(result: dict[str, Any]) -> str:
    return f"{result['strategy']}: {result['action']} at {result['step']}: {result['outcome']}: {result['reason']}"


@contextlib.contextmanager
def _file(experiment: str | dict[str, Any]) -> Iterator[str]:
    """The experiment as a file that streamproof can read; JSON is YAML."""
    if isinstance(experiment, str):
        yield experiment
        return
    with tempfile.TemporaryDirectory(prefix="streamproof-") as folder:
        path = Path(folder, "experiment.yaml")
        path.write_text(json.dumps(experiment))
        yield str(path)
