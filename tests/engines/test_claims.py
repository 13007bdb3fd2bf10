"""Each row of what is claimed of the engines beside Spark: run for real, and as expected. ``make test-engines``."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import engines
from streamproof.engines.dstreams.spec import DStreamsSpec
from streamproof.engines.flink.spec import FlinkSpec
from streamproof.engines.kafka_streams.spec import KafkaStreamsSpec
from streamproof.engines.storm.spec import StormSpec
from streamproof.run import lock
from streamproof.testbed import install
from streamproof.testbed.embedded import Testbed
from tests.support.processes import of_runs

LOCKS = {spec.model_fields["engine"].default: spec.jars for spec in (DStreamsSpec, FlinkSpec, KafkaStreamsSpec, StormSpec)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("row", engines.rows([]), ids=lambda row: row["experiment"])
def test_a_row_is_as_expected(row: dict[str, Any], testbed: Testbed) -> None:
    if (path := LOCKS.get(row["engine"])) is not None and install.problems_with(path):
        pytest.skip(f"the engine is not set up: streamproof setup {row['engine']}")
    result, reason = engines.judged(row)
    assert result["as_expected"], (result, reason)
    assert lock.holder() is None
    assert of_runs() == [], "nothing of the job is left"
