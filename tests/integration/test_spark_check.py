"""The check as a Spark job says what the local one says, of every damage and of legal histories."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from delivery.folder import EvidenceError, RunFolder
from delivery.guarantee import Guarantee, Promise
from delivery.verdict import Look, Terms, judge
from pipelines import spark_check
from tests.mutation import clean, legal
from tests.mutation.damage import DAMAGES
from tests.mutation.evidence import Evidence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TERMS = Terms("run", "x", "kafka_to_kafka", "strategy", Guarantee.EXACTLY_ONCE, (), (), 1, promises=frozenset(Promise))
KINDS = list(DAMAGES)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_check.session("local[2]") as session:
        session.conf.set("spark.sql.shuffle.partitions", "2")
        yield session


def judged(folder: RunFolder, **look: Look) -> Any:
    try:
        judgement = judge(folder, TERMS, lambda *_: None, **look)
    except EvidenceError as error:
        return str(error)
    return judgement.verdict, judgement.table.to_pylist()


def alike(folder: RunFolder, spark: SparkSession) -> None:
    here, there = judged(folder), judged(folder, look=partial(spark_check.survey, spark))
    assert here == there


@pytest.mark.parametrize("kind", KINDS[::15])
def test_a_damaged_history_is_judged_alike(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(50):
        evidence: Evidence = clean.make(rng, str(rng.choice(clean.MADE)))
        if DAMAGES[kind](evidence, rng):
            break
    alike(evidence.write(tmp_path), spark)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for number, kind in enumerate(KINDS) if number % 15])
def test_a_history_with_any_other_damage_is_judged_alike(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    test_a_damaged_history_is_judged_alike(tmp_path, spark, kind)


@pytest.mark.parametrize("seed", range(2))
def test_a_legal_history_is_judged_alike(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    evidence, _ = legal.history(np.random.default_rng(seed))
    alike(evidence.write(tmp_path), spark)
