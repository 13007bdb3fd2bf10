"""The check as a Spark job says what the local one says: of every damage, of legal histories, of sources that are not clean."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from streamproof.evidence import histories as history
from streamproof.evidence import manifest
from streamproof.evidence.folder import EvidenceError, RunFolder
from streamproof.evidence.outcome import Outcome
from streamproof.run import spark_check
from streamproof.testbed.process import TestbedError
from streamproof.verdict.anomaly import RESULT_KINDS, Anomaly
from streamproof.verdict.guarantee import Guarantee, Promise
from streamproof.verdict.judge import RunSpec, Scanner, judge
from streamproof.verdict.scan import spark_scan
from tests.mutation import clean, legal
from tests.mutation.damage import DAMAGES
from tests.mutation.evidence import Columns, Evidence
from tests.mutation.run import FIXTURES
from tests.support.histories import Histories, Story

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPEC = RunSpec("run", "x", "kafka_to_kafka", "strategy", Guarantee.EXACTLY_ONCE, (), (), 1, promises=frozenset(Promise))
SPOILT = {"an_identity_that_was_sent_twice", "a_send_without_identity", "a_delivery_without_a_time"}
# Of a small query most is the time to compile it, and workers need no Python for any.
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.pyspark.python": "/nowhere/python",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    before = signal.getsignal(signal.SIGINT)
    with spark_check.session("local[2]", SETTINGS) as session:
        assert signal.getsignal(signal.SIGINT) is before, "by which a run is stopped"
        yield session


def judged(folder: RunFolder, **scan: Scanner) -> Any:
    """The verdict with each record that it names, and its blame; of evidence that is refused the complaint."""
    try:
        judgement = judge(folder, SPEC, **scan)
    except EvidenceError as error:
        return str(error)
    return judgement.verdict.to_json(), judgement.table.to_pylist()


def here_and_there(folder: RunFolder, spark: SparkSession) -> tuple[Any, Any]:
    return judged(folder), judged(folder, scan=partial(spark_scan.scan_histories, spark))


# --- many histories in one ---------------------------------------------------------------------------------------------------------------


def damaged(kind: str, rng: np.random.Generator) -> Evidence:
    for _ in range(100):
        evidence: Evidence = clean.make(rng, str(rng.choice(clean.MADE)))
        if DAMAGES[kind](evidence, rng):
            return evidence
    raise AssertionError(f"no history could be damaged so: {kind}")


def merged(histories: Iterable[Evidence]) -> Evidence:
    """One run's evidence that holds all of these, each with producers, partitions and batches of its own."""
    sent: list[Columns] = []
    delivered: list[Columns] = []
    progress: list[dict[str, Any]] = []
    intents: list[tuple[int, int, int]] = []
    producers = partitions = batches = 0
    lived: list[tuple[int, int]] = []
    steps: list[dict[str, Any]] = []
    for each in histories:
        lived += [each.lived] if each.lived else []
        steps += each.steps
        known = {*each.sent["producer"].tolist(), *each.delivered["producer"].tolist(), *(producer for producer, _, _ in each.intents)} - {
            -1
        }
        renamed = {-1: -1} | {producer: producers + number for number, producer in enumerate(sorted(known))}
        for columns, into in ((each.sent, sent), (each.delivered, delivered)):
            moved = {"producer": np.array([renamed[producer] for producer in columns["producer"].tolist()], np.int64)}
            moved["partition"] = columns["partition"] + partitions
            into.append({**columns, **moved})
        told = delivered[-1]["batch"]
        delivered[-1]["batch"] = np.where(told < 0, told, told + batches)
        for line in each.progress:
            ends = {name: {str(int(at) + partitions): end for at, end in line[name].items()} for name in ("from", "until")}
            progress.append({**line, **ends, "batch": line["batch"] + batches})
        intents += [(renamed[producer], first, count) for producer, first, count in each.intents]
        producers += len(known)
        partitions += 1 + max(int(columns["partition"].max(initial=0)) for columns in (each.sent, each.delivered))
        batches += 5 + max([int(told.max(initial=0)), *(line["batch"] for line in each.progress)])
    return Evidence(
        "exactly-once",
        frozenset({"atomic", "ordered"}),
        *({name: np.concatenate([columns[name] for columns in parts]) for name in parts[0]} for parts in (sent, delivered)),
        progress,
        intents,
        cuts=3,
        lived=(min(since for since, _ in lived), max(until for _, until in lived)) if lived else None,
        steps=steps,
    )


def everything_damaged(seed: int) -> Evidence:
    rng = np.random.default_rng(seed)
    return merged(damaged(kind, rng) for kind in DAMAGES if kind not in SPOILT)


@pytest.mark.slow
def test_every_damage_is_found_there_as_it_is_here(tmp_path: Path, spark: SparkSession) -> None:
    here, there = here_and_there(everything_damaged(1).write(tmp_path / "run"), spark)
    assert here == there
    assert there[0]["untimed"] > 0, "times that lie"
    assert there[0]["unordered"] > 0
    assert {anomaly for anomaly, count in there[0]["anomalies"].items() if count} == {*map(str, set(Anomaly) - set(RESULT_KINDS))}


@pytest.mark.slow
def test_legal_histories_and_those_of_sources_that_are_not_clean_are_judged_alike(tmp_path: Path, spark: SparkSession) -> None:
    rng, made = np.random.default_rng(2), []
    for change in (*legal.ALWAYS, *legal.WHERE["at-least-once"]):
        made.append(clean.make(rng, "two_phase_commit" if change in legal.ALWAYS else "checkpoint"))
        change(made[-1], rng)
    here, there = here_and_there(merged(made).write(tmp_path / "run"), spark)
    assert here == there
    assert there[0]["sent"]["indeterminate"] > 0, "sends that nobody knows of"
    assert there[0]["sent"]["rejected"] > 0
    assert there[0]["anomalies"]["DUPLICATED"] > 0, "what at-least-once allows"
    assert there[0]["anomalies"]["LOST"] == 0


@pytest.mark.slow
def test_one_damaged_record_is_all_that_a_clean_history_and_a_damaged_one_differ_in(tmp_path: Path, spark: SparkSession) -> None:
    """What could not tell the two apart would agree with anything."""
    evidence = clean.make(np.random.default_rng(3), "two_phase_commit")
    clean_here, clean_there = here_and_there(evidence.write(tmp_path / "clean"), spark)
    assert clean_here == clean_there
    assert (clean_there[0]["outcome"], sum(clean_there[0]["anomalies"].values())) == ("PASSED", 0)
    DAMAGES["flip_a_bit_of_the_checksum"](evidence, np.random.default_rng(3))
    here, there = here_and_there(evidence.write(tmp_path / "damaged"), spark)
    assert here == there != clean_there
    assert there[0]["outcome"] == "FAILED"
    assert there[0]["anomalies"] == {**clean_there[0]["anomalies"], "CORRUPTED": 1}


@pytest.mark.slow
def test_only_candidates_come_back(tmp_path: Path, spark: SparkSession) -> None:
    def scan(story: Story, path: Path) -> Any:
        folder = story.write(path)
        return spark_scan.scan_histories(spark, folder, SPEC.asked, story.progress, np.array([1], np.int64), spark_scan.Stamps.WRITTEN)

    found = scan(Story(), tmp_path / "[a]{b}")  # no pattern
    assert (len(found.evidence.sent), len(found.evidence.delivered)) == (0, 0)
    assert (found.reconciliation.acked, found.reconciliation.delivered, int(found.flow.records.sum())) == (60, 60, 60)
    story = Story()
    story.histories.drop([(0, 7)])
    found = scan(story, tmp_path / "lost")
    assert len(found.evidence.sent) == 15, "its batch"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 16))
def test_other_damages_are_found_there_as_here(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    here, there = here_and_there(everything_damaged(seed).write(tmp_path / "run"), spark)
    assert here == there


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SPOILT))
def test_evidence_that_is_no_evidence_is_refused_with_the_same_words(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    here, there = here_and_there(damaged(kind, np.random.default_rng(4)).write(tmp_path / "run"), spark)
    assert here == there
    assert isinstance(there, str)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 24))
def test_any_legal_histories_are_judged_alike(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [legal.history(rng)[0] for _ in range(20)]
    here, there = here_and_there(merged(each for each in made if len(each.sent_ids)).write(tmp_path / "run"), spark)
    assert here == there


@pytest.mark.slow
@pytest.mark.parametrize("run", sorted(path.name for path in FIXTURES.iterdir()))
def test_real_runs_are_judged_alike(tmp_path: Path, spark: SparkSession, run: str) -> None:
    evidence = clean.read(FIXTURES / run)
    folder = RunFolder(FIXTURES / run) if evidence is None else evidence.write(tmp_path / "run")
    here, there = here_and_there(folder, spark)
    assert here == there


@pytest.mark.slow
def test_a_run_without_any_record_is_judged_alike(tmp_path: Path, spark: SparkSession) -> None:
    folder = Story(histories=Histories()).write(tmp_path / "run")
    for path in [*history.files(folder.sent), *history.files(folder.delivered)]:
        path.unlink()
    manifest.write(folder)
    here, there = here_and_there(folder, spark)
    assert here == there


@pytest.mark.slow
def test_stamps_of_what_is_visible_at_once_are_judged_alike(tmp_path: Path, spark: SparkSession) -> None:
    story = Story()
    story.drain["stamps"] = "visible"
    story.histories.settle([(0, 3)], Outcome.INDETERMINATE)
    story.histories.double([(0, 3)])
    here, there = here_and_there(story.write(tmp_path / "run"), spark)
    assert here == there


# --- errors ---------------------------------------------------------------------------------------------------------------------------


def test_a_file_that_lacks_a_column_is_no_evidence(tmp_path: Path, spark: SparkSession) -> None:
    import pyarrow.parquet as pq

    folder = Story().write(tmp_path / "run")
    (path,) = history.files(folder.delivered)
    pq.write_table(pq.read_table(path).drop_columns(["crc"]), path)
    manifest.write(folder)
    with pytest.raises(EvidenceError, match=r"00000\.parquet cannot be read as evidence: no column crc"):
        judge(folder, SPEC, scan=partial(spark_scan.scan_histories, spark))


def test_a_machine_that_does_not_see_the_folder_is_told_of(tmp_path: Path, spark: SparkSession) -> None:
    folder = Story().write(tmp_path / "run")
    spark_scan._view(spark, "sent", folder, history.SENT)
    for path in history.files(folder.sent):
        path.unlink()
    with pytest.raises(TestbedError, match=r"a machine of spark://x:1 does not see .*/run"), spark_check._told("spark://x:1", folder):
        spark.sql("SELECT sum(sequence) FROM sent").collect()


def test_a_file_with_damaged_data_is_no_evidence(tmp_path: Path, spark: SparkSession) -> None:
    folder = Story().write(tmp_path / "run")
    (path,) = history.files(folder.sent)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + bytes(400) + whole[404:])
    manifest.write(folder)
    with pytest.raises(EvidenceError, match="cannot be read as evidence"), spark_check._told("local[2]", folder):
        judge(folder, SPEC, scan=partial(spark_scan.scan_histories, spark))
