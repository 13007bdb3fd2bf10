"""Where Spark finds Kafka: at one address, or at one for the driver and another for the executors."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from streamproof.engines.spark import spark_kafka
from tests.support.jobs import spark_job

ONE = spark_job("folder", name="query", bootstrap="127.0.0.1:1")
TWO = replace(ONE, executors_bootstrap="127.0.0.1:2")


def test_with_one_address_spark_is_told_it() -> None:
    assert spark_kafka.address(ONE) == {"kafka.bootstrap.servers": "127.0.0.1:1"}
    assert ONE.task_bootstrap == ONE.bootstrap


def test_with_two_addresses_each_jvm_finds_its_own_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(spark_kafka.VARIABLE, "of an earlier job")
    settings = spark_kafka.tell(TWO)
    assert spark_kafka.address(TWO)["kafka.bootstrap.servers"] == f"${{env:{spark_kafka.VARIABLE}}}"
    assert os.environ[spark_kafka.VARIABLE] == TWO.bootstrap == "127.0.0.1:1"
    assert settings == {f"spark.executorEnv.{spark_kafka.VARIABLE}": "127.0.0.1:2"}
    assert TWO.task_bootstrap == "127.0.0.1:2"
