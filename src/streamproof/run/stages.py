"""The stages of a run. Each takes the run's folder, reads what earlier stages wrote, writes its own part, and may be repeated.

    prepare -> (run_pipeline | generate_load | inject_faults) -> drain -> verify -> expect -> report, and always restore

Their order is in ``streamproof.evidence.stages``. The CLI and Airflow's tasks call the same function, :func:`perform`. A stage that fails
says so in the journal, which ends the others that wait beside it.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import json
import logging
import os
import platform
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from streamproof import extras, settings
from streamproof.engines.lookup import engine_of, read_job
from streamproof.engines.spark.registry import PIPELINES
from streamproof.errors import BadInput
from streamproof.evidence import expected, inputs, manifest, sent_stream
from streamproof.evidence.folder import EvidenceError, RunFolder, write_atomically
from streamproof.evidence.journal import (
    Aborted,
    HistoryFailed,
    KafkaRebuilt,
    LoadFinished,
    LoadStarted,
    MessagesRead,
    Restored,
    RunCreated,
    StageEnded,
    StageFailed,
    StageFinished,
    StageStarted,
    TestbedTaken,
)
from streamproof.evidence.made_anew import MadeAnew
from streamproof.evidence.outcome import Outcome
from streamproof.evidence.progress import Progress
from streamproof.experiment import model
from streamproof.experiment.model import Experiment
from streamproof.experiment.schedule import Schedule, plan, planned_faults
from streamproof.faults import FAULTS
from streamproof.history.record import HistoryError
from streamproof.jobs.context import RunContext, RunEnded
from streamproof.jobs.job import Job
from streamproof.jobs.profile import Role, Trait
from streamproof.jobs.results import Results
from streamproof.kafka.servers import access_of
from streamproof.load import expected as counting
from streamproof.load import files, timed, workload
from streamproof.load.gate import HOLD, Gate, Orders
from streamproof.report.report import render
from streamproof.run import coverage, healing, injector, lock, named_topics, spark_check, supervisor, watchdog, writers
from streamproof.run.second_judge import disagreement_with, own_suite
from streamproof.sinks import outputs, payloads, second_reading
from streamproof.suites import agreement, own
from streamproof.suites.evaluate import Evaluation
from streamproof.suites.evaluate import evaluate as evaluate_here
from streamproof.suites.spec import SuiteSpec
from streamproof.testbed import chosen, credentials, embedded, hosts, postgres, reached, rights
from streamproof.testbed.embedded import Testbed
from streamproof.testbed.external import Outside
from streamproof.testbed.kafka import Cluster
from streamproof.testbed.process import TestbedError
from streamproof.verdict.decide import decide
from streamproof.verdict.ending import Ending, notes
from streamproof.verdict.judge import Judgement, RunSpec, judge
from streamproof.verdict.reconciliation import write_reconciliation
from streamproof.verdict.stateful import by_sql
from streamproof.verdict.verdict import Verdict, decided

DRAIN_S = 150.0
log = logging.getLogger("streamproof.run.stages")


# --- before a run -----------------------------------------------------------------------------------------------------------------


def create(experiment: Experiment, name: str | None = None, owner: int | None = None) -> RunFolder:
    """Make the run's folder. ``owner`` is the pid of the one process that carries the run, None when many do.

    Repeating it with the ``name`` of an existing run gives that run. Raises BadInput when the experiment cannot be planned.
    """
    extras.require(*extras.RUN)
    schedule = plan(experiment)
    check_suite(experiment)
    experiment.spec.check()
    try:
        experiment.workload.check(experiment.profile.reads)
    except files.NotReadable as error:
        raise BadInput(f"workload: file: {error}") from error
    counts, records = _expected_counts(experiment), _inputs(experiment)
    settings.runs().mkdir(parents=True, exist_ok=True)
    if name is None:
        name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{experiment.name}"
        names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(2)))
        name = next(candidate for candidate in names if not (settings.runs() / candidate).exists())
    folder = RunFolder.create(settings.runs() / name)
    if not folder.experiment.exists():
        write_atomically(folder.schedule, schedule.to_json())
        write_atomically(folder.path / "owner.json", json.dumps({"pid": owner}))
        if counts is not None:
            expected.write(folder, counts)
        if experiment.profile.results is not None:
            inputs.write(folder, records)
            write_atomically(folder.reference, experiment.profile.results.sql())
        if experiment.suite is not None:
            write_atomically(own.path(folder), json.dumps(experiment.suite.document(), indent=1))
        folder.journal.append(RunCreated(run=folder.name, seed=experiment.seed))
        write_atomically(folder.experiment, experiment.to_yaml())
    return folder


def _expected_counts(experiment: Experiment) -> np.ndarray | None:
    """How often each record is due, None where each is due once. Raises BadInput when what the experiment expects does not fit them."""
    if experiment.profile.expected is None:
        return None
    try:
        return counting.counts(experiment.profile.expected, workload.events(experiment.workload, experiment.seed))
    except counting.NotCountable as error:
        raise BadInput(f"job: expected: {error}") from error


def _inputs(experiment: Experiment) -> list[str]:
    """What a job is given whose results a query computes again; nothing for others. Raises BadInput when the query does not fit it."""
    if experiment.profile.results is None:
        return []
    try:
        records = files.objects(workload.events(experiment.workload, experiment.seed))
    except files.NotReadable as error:
        raise BadInput(f"job: results: {error}") from error
    table = pa.table({"record": records})
    nobody = {f"_{name}": np.arange(len(records)) for name in ("producer", "sequence", "partition", "offset")}
    try:
        due = by_sql.computed(_by_sql(experiment.profile.results, experiment.profile.results.sql()), table, nobody)
    except inputs.QueryError as error:
        raise BadInput(f"job: results: {error}") from error
    if not any(one.certain for one in due.values()):
        raise BadInput("job: results: the reference gives no result that is due, so nothing could be missing: is it what you meant?")
    return records


def _by_sql(results: Results, sql: str) -> by_sql.BySql:
    return by_sql.BySql(results.key, results.values, sql, results.final)


def check_suite(experiment: Experiment) -> None:
    """Raises BadInput naming each of the user's own expectations that cannot be evaluated."""
    if experiment.suite is None:
        return
    try:
        own.check(experiment.suite.document())
    except own.SuiteError as error:
        raise BadInput(str(error)) from error


def perform(name: str, folder: RunFolder, **options: Any) -> None:
    """Do one stage and journal it; ``options`` go to the stage. Raises what it raises, RunEnded when it ended because the run did."""
    begun = time.monotonic()
    folder.journal.append(StageStarted(stage=name, pid=os.getpid()))
    log.info("stage %s", name)
    try:
        with lock.beating(folder.name):
            STAGES[name](folder, **options)
    except RunEnded as error:
        folder.journal.append(StageEnded(stage=name, reason=str(error)))
        raise
    except BaseException as error:  # journaled and raised again: the stages beside this one must learn of it, whatever it is
        folder.journal.append(StageFailed(stage=name, error=f"{type(error).__name__}: {error}"))
        raise
    folder.journal.append(StageFinished(stage=name, seconds=round(time.monotonic() - begun, 3)))


# --- the stages --------------------------------------------------------------------------------------------------------------------


def prepare(folder: RunFolder) -> None:
    """Take the lock, heal what others left, bring the testbed up, make the run's topics, describe its job.

    A testbed whose Kafka has another number of brokers than the experiment asks for is rebuilt, once no other run holds it.
    """
    experiment = load(folder)
    if experiment.testbed == "containers" and hosts.stack() is None:
        raise TestbedError(
            "`testbed: containers` is asked for, and this is no container of the stack: trigger the run in its Airflow, or use "
            "`docker compose exec airflow-scheduler streamproof run FILE`"
        )
    for injection in Schedule.read(folder).injections:
        if (reason := FAULTS[injection.fault].prevented()) is not None:
            raise TestbedError(f"{injection.fault} cannot be done on this machine: {reason}")
    owner = folder.read_json(folder.path / "owner.json")["pid"]
    held = lock.holder()
    if held is not None and held.run != folder.name and lock.is_stale(held):
        log.warning("run %s did not give the testbed back: healing", held.run)
        lock.release(held.run)
    lock.acquire(folder.name, folder.path, owner)
    try:
        watchdog.start(folder)
        healing.heal_all(spare=folder.path)  # what they left may be what keeps the testbed from coming up
        testbed = embedded.up(log.info, None if embedded.status() else experiment.brokers)
        if len(testbed.kafka) != experiment.brokers:  # now that nobody else uses it
            testbed = embedded.up(log.info, experiment.brokers)
            folder.journal.append(KafkaRebuilt(brokers=experiment.brokers))
        testbed = chosen.of(folder, testbed)
        if isinstance(testbed, Outside):
            reached.check(testbed, _wants_executors(folder))
            if testbed.external.kafka is not None:
                transactions = Trait.KAFKA_TRANSACTIONS in experiment.profile.traits
                rights.require(testbed.direct_kafka, folder.name, transactions=transactions)
        for proxy in testbed.links:
            if not testbed.proxies.enabled(proxy):
                raise TestbedError(f"the proxy {proxy} is disabled: enable it, the job could not reach anything through it")
        _set_up(folder, experiment, testbed)
    except BaseException:  # whatever it was: a run that was not prepared must not hold the testbed
        lock.release(folder.name)
        if folder.journal.last(TestbedTaken) is None:  # else the restore needs them
            credentials.forget(folder.name)
        raise


def _wants_executors(folder: RunFolder) -> str | None:
    """A fault of the run that needs executors to be on this machine; None where none does."""
    for injection in Schedule.read(folder).injections:
        fault = FAULTS[injection.fault]
        if fault.here_only(fault.parameters_model.model_validate(injection.parameters)) & {Role.EXECUTORS, Role.PYTHON_WORKERS}:
            return injection.fault
    return None


def _set_up(folder: RunFolder, experiment: Experiment, testbed: Testbed) -> None:
    """Under the lock: make the run's topics, describe its job."""
    if not (folder.path / "job.json").exists():
        named_topics.make_way(experiment.spec.named_topics.values(), testbed)
    folder.journal.append(TestbedTaken(folder=testbed.folder))
    if servers := _read_at(folder, experiment):
        folder.journal.append(MessagesRead(links=testbed.read_messages(servers)))
        testbed.messages.trace(folder.messages)
    name = f"{rights.PREFIX}{folder.name}"
    job = experiment.spec.job(
        testbed,
        name=name,
        folder=str(folder.path),
        bootstrap=str(testbed.driver_kafka),
        access=access_of(testbed.driver_kafka).to_dict(),
        input_topic=f"{name}.in",
        output_topic=f"{name}.out",
        batch_records=experiment.micro_batch,
        transaction_timeout_ms=experiment.transaction_timeout_s * 1000,
        postgres=testbed.pipeline_postgres,
    )
    job.write()
    count = experiment.workload.partitions
    # What was recorded has times of its own, and is not to be forgotten for its age.
    Cluster(testbed.direct_kafka).create_topics({job.input_topic: count}, **{"retention.ms": "-1"})
    outputs.of(job).create(job, testbed, count)
    write_atomically(folder.path / "deadline.json", json.dumps({"at": time.time() + experiment.timeout_s}))


def _read_at(folder: RunFolder, experiment: Experiment) -> frozenset[str]:
    """The servers whose messages the run reads: those that a fault of it asks for, and all of the job's when it is traced, or a
    fault waits for a window."""
    injections = Schedule.read(folder).injections
    aimed = any(injection.window is not None for injection in injections)
    servers = experiment.profile.links if experiment.traced or aimed else frozenset()
    for injection in injections:
        fault = FAULTS[injection.fault]
        servers |= fault.reads(fault.parameters_model.model_validate(injection.parameters))
    return servers


def run_pipeline(folder: RunFolder, **options: Any) -> None:
    """Supervise the job's driver until the run is done; ``options`` are those of the supervisor."""
    supervisor.run_pipeline(context(folder), **options)


def generate_load(folder: RunFolder) -> None:
    """Send the workload, as far as the gate is open, and record what became of each record.

    Repeated after its end it sends nothing. Repeated after it was killed it goes on behind the last record that was to be sent before:
    nothing is sent twice, and what the killed one left unsettled is INDETERMINATE.
    """
    if folder.journal.last(LoadFinished) is not None:
        log.info("the workload was sent before")
        return
    here, experiment = context(folder), load(folder)
    events = _events(folder, experiment)
    sender = workload.Sender(
        folder, here.testbed.direct_kafka, here.job.input_topic, here.job.location_read, here.job.location_delivered.whole
    )
    gate, orders, sent, begun = Gate(folder), Orders(folder), sender.reached, time.monotonic()
    before = workload.settled(folder)
    events = itertools.islice(events, sent, None)
    size = min(workload.MAX_CHUNK, max(1, here.job.batch_records // 2))
    folder.journal.append(LoadStarted(records=experiment.workload.records))
    try:
        while chunk := list(itertools.islice(events, size)):
            due = sent + len(chunk)
            here.wait_for(
                "the gate of the workload to open",
                lambda due=due: (  # type: ignore[misc]
                    gate.records() >= due
                    and HOLD not in orders.active()
                    and workload.pace(due - sender.reached, begun, experiment.workload.rate_per_s)
                ),
                here.deadline - time.monotonic(),
            )
            sender.send(sent, chunk, sender.partitions())
            sent = due
        sender.send_late(sender.partitions())
    finally:
        sender.save()
    counts = {str(outcome).lower(): sender.counts[outcome] + before[outcome] for outcome in Outcome}
    folder.journal.append(LoadFinished(acked=counts["acked"], rejected=counts["rejected"], indeterminate=counts["indeterminate"]))
    log.info("sent %d records: %s", sent, counts)


def _events(folder: RunFolder, experiment: Experiment) -> Iterator[files.Event]:
    if experiment.reference_model is None:
        return workload.events(experiment.workload, experiment.seed)
    events = timed.events(experiment.workload, experiment.stateful, experiment.seed, joins=PIPELINES[experiment.pipeline].joins)
    timed.write(folder, events)
    return timed.payloads(events)


def inject_faults(folder: RunFolder, **options: Any) -> None:
    """Lead the run through its phases and inject faults by the schedule; ``options`` are those of the injector."""
    injector.run_schedule(context(folder), Schedule.read(folder), **options)


def drain(folder: RunFolder) -> None:
    """Read everything that was delivered, once every process of the job has ended, and write the manifest of the evidence."""
    writers.end_writers(folder)
    _drain(folder)


def _drain(folder: RunFolder) -> None:
    job, testbed = Job.read(folder), chosen.current(folder)
    drained = outputs.of(job).drain(folder, job, testbed, DRAIN_S)
    ends = MadeAnew.of(folder).placed(Cluster(testbed.direct_kafka).end_offsets(job.input_topic))
    write_atomically(folder.source, json.dumps({"end_offsets": {str(partition): end for partition, end in sorted(ends.items())}}))
    experiment = load(folder)
    if experiment.keeps_values:
        payloads.keep_all(folder, job, testbed, drained, DRAIN_S)
    if not experiment.of_results:
        second_reading.read_again(folder, job, testbed, drained, experiment.seed, DRAIN_S)
    sent_stream.fold_all(folder.sent)
    coverage.write(folder, job)
    manifest.write(folder)


def verify(folder: RunFolder, spark: str | None = None) -> None:
    """Check the histories against each other, here or by a Spark job on the master ``spark``; write ``reconciliation.parquet``, what the
    run is held to, and a preliminary ``verdict.json``: what the expectation suites say is not known yet."""
    _look_again(folder)
    spec = run_spec(folder)
    judgement = judge(folder, spec) if spark is None else spark_check.judged(folder, spec, spark)
    suite_spec(spec).write(folder)
    write_reconciliation(folder, judgement.table)
    judgement.verdict.write(folder)
    log.info("%s: %s", judgement.verdict.outcome, judgement.verdict.reason)


def _look_again(folder: RunFolder) -> None:
    """Drain again what somebody has written to since the drain; when it grows for a second time the drain is not complete."""
    if not folder.read_json(folder.drain).get("complete") or (grown := writers.wrote_since(folder)) is None:
        return
    log.warning("the output changed after it was drained: %s. It is drained again", grown)
    _drain(folder)
    if (grown := writers.wrote_since(folder)) is not None:
        writers.deny(folder, f"somebody still writes to the output: {grown}")
        manifest.write(folder)


def expect(folder: RunFolder, evaluate: Callable[[RunFolder], Evaluation] = evaluate_here) -> None:
    """Judge the run's data by the expectation suites, and add what they say to the verdict: whether they and the checkers name the same
    records, and what the user's own suite found."""
    verdict = Verdict.read(folder)
    evaluation = evaluate(folder)
    by_records = decide(verdict.model_copy(update={"suite": None}).facts(Ending()))
    conflict, not_evaluated = disagreement_with(by_records, evaluation)
    results = {
        "disagreement": verdict.disagreement or conflict,
        "not_evaluated": verdict.not_evaluated or not_evaluated,
        "suite": own_suite(evaluation),
    }
    judged = decided(verdict.model_copy(update=results), Ending(aborted=Ending.of(folder.journal).aborted))
    if judged != verdict:
        judged.write(folder)
        log.info("%s: %s", judged.outcome, judged.reason)


def report(folder: RunFolder) -> None:
    """Record the run in the history, write ``report.html``."""
    _remember(folder)
    log.info("report: %s", render(folder, settings.cache()))


def restore(folder: RunFolder) -> None:
    """Leave the testbed as it was found. A run that broke or was stopped gets the verdict that says so."""
    if Ending.of(folder.journal) == Ending() and not folder.verdict.exists():
        # Its other stages may still be at work (Airflow starts a teardown at once): the journal tells them to end.
        folder.journal.append(Aborted(reason="the run was stopped before it had a verdict"))
    _conclude(folder)
    if folder.journal.last(TestbedTaken) is not None and embedded.started() is not None:
        healing.give_back(folder)
    if not healing.left_behind(folder):
        credentials.forget(folder.name)
    _note(folder)
    _remember(folder)  # `report` may have come before, or may never come: the history has what the run ends with


def _conclude(folder: RunFolder) -> None:
    """Add to the verdict how the run ended: whatever its records say, a run that was stopped or broke is not judged by them."""
    ending = Ending.of(folder.journal)
    if ending == Ending():
        return
    stored = _stored(folder)
    verdict = decided(run_spec(folder).account() if stored is None else stored, ending)
    if stored is None or stored.outcome is not verdict.outcome:
        verdict.write(folder)


def _stored(folder: RunFolder) -> Verdict | None:
    """The verdict so far, None when there is none. One that cannot be read must not keep the testbed from being given back."""
    if not folder.verdict.exists():
        return None
    try:
        return Verdict.read(folder)
    except EvidenceError as error:
        log.error("%s", error)
        return None


def _remember(folder: RunFolder) -> None:
    """Record the run in the history. When that fails the run keeps its verdict, and says so among its notes."""
    from streamproof.run import recording  # SQLAlchemy takes a moment to import, which most stages need not wait for

    if not folder.verdict.exists():
        return
    try:
        recording.record(folder)
    except (HistoryError, EvidenceError, BadInput) as error:
        folder.journal.append(HistoryFailed(error=str(error)))
        log.error("the run is not in the history: %s", error)
        _note(folder)


def _note(folder: RunFolder) -> None:
    """Add to the verdict what the journal says since it was written."""
    lines, stored = notes(folder.journal.events()), _stored(folder)
    if lines and stored is not None:
        stored.model_copy(update={"notes": tuple(dict.fromkeys([*stored.notes, *lines]))}).write(folder)


STAGES: dict[str, Callable[..., None]] = {
    stage.__name__: stage for stage in (prepare, run_pipeline, generate_load, inject_faults, drain, verify, expect, report, restore)
}


def abort(folder: RunFolder, reason: str) -> None:
    """Stop a run: its stages end by themselves once they see the journal, its driver is killed, the testbed restored; it is ABORTED.

    A run that was judged and restored before is left as it is; one that was judged only keeps its verdict.
    """
    if folder.verdict.exists() and folder.journal.last(Restored) is not None:
        supervisor.kill_drivers(folder)
        return
    if not any(event.stage == "expect" for event in folder.journal.all(StageFinished)):
        folder.journal.append(Aborted(reason=reason))
    restore(folder)


# --- what the stages share ---------------------------------------------------------------------------------------------------------


def load(folder: RunFolder) -> Experiment:
    return model.load(folder.experiment)


def context(folder: RunFolder) -> RunContext:
    """The run as its stages and its faults see it. Raises BadInput when it was not prepared."""
    if not (folder.path / "job.json").exists():
        raise BadInput(f"run {folder.name} was not prepared: it has no job.json")
    experiment, job = load(folder), read_job(folder)
    left_s = folder.read_json(folder.path / "deadline.json")["at"] - time.time()
    return RunContext(
        folder=folder,
        testbed=chosen.current(folder),
        job=job,
        engine=engine_of(job),
        profile=experiment.profile,
        progress=Progress(folder),
        rng=random.Random(f"scene:{experiment.seed}"),
        deadline=time.monotonic() + left_s,
        records=experiment.workload.records,
    )


def run_spec(folder: RunFolder) -> RunSpec:
    """The run's spec, from its own folder."""
    experiment = load(folder)
    return RunSpec(
        run=folder.name,
        experiment=experiment.name,
        pipeline=experiment.pipeline,
        strategy=experiment.label,
        guarantee=experiment.promised,
        expected=tuple(experiment.expect),
        planned=tuple(injection.injection for injection in Schedule.read(folder).injections),
        seed=experiment.seed,
        versions=versions(),
        promises=experiment.promises,
        reference_model=experiment.reference_model,
        recover_within_s=experiment.recover_within_s,
        records=experiment.workload.records,
        faults=planned_faults(experiment),
        location=experiment.profile.location,
        not_judged=experiment.profile.not_judged,
        counted=experiment.profile.expected is not None,
        results=_by_sql(results, _reference(folder)) if (results := experiment.profile.results) is not None else None,
    )


def _reference(folder: RunFolder) -> str:
    try:
        return folder.reference.read_text()
    except OSError as error:
        raise EvidenceError(f"{folder.reference} cannot be read as evidence: {error}") from error


def suite_spec(spec: RunSpec) -> SuiteSpec:
    """The part of a run's spec that the expectation suites need."""
    model = spec.reference_model
    computation = None
    if model is not None:
        computation = {"kind": type(model).__name__.lower(), **vars(model), "delays_ms": list(model.delays_ms)}
    if spec.results is not None:
        computation = {"kind": "sql", **asdict(spec.results)}
    promises = tuple(sorted(spec.promises))
    location = spec.location.to_dict()
    return SuiteSpec(spec.guarantee, promises, spec.asked, spec.expected, spec.recover_within_s, computation, location)


def disagreement(folder: RunFolder, judgement: Judgement) -> str | None:
    """What only one of the two judges of a run names; None when they agree. Writes nothing."""
    return agreement.check(folder, suite_spec(run_spec(folder)), judgement.table)


def versions() -> dict[str, str]:
    """What runs here, by name."""
    packages = ("pyspark", "confluent-kafka", "kafka-python", "psycopg", "great-expectations", "apache-airflow", "toxiproxy-python")
    installed = {"python": platform.python_version(), "kafka": "4.1.0", "postgres": postgres.VERSION}
    for package in packages:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


__all__ = ["STAGES", "abort", "context", "create", "disagreement", "load", "perform", "run_spec", "suite_spec", "versions"]
