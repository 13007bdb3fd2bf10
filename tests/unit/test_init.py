"""A project around somebody's own job: what is read from its script, and an experiment that can be planned whatever that is."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamproof.cli.main import app, main
from streamproof.errors import BadInput
from streamproof.experiment import model, scaffold
from streamproof.experiment.schedule import plan
from tests.support.checkout import ROOT

APPEND = ROOT / "examples" / "orders_to_postgres" / "append.py"
FORWARD = ROOT / "pipelines" / "forward.py"
OWN = """
import os
from pyspark.sql import SparkSession
BROKERS = "kafka.example:9092"
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("kafka").option("subscribe", os.getenv("ORDERS_TOPIC")).option("x", os.environ.get("SHOP_MODE")).load()
rows.writeStream.format("parquet").option("checkpointLocation", os.environ["CHECKPOINT_DIR"]).start("out")
"""


def _experiment(folder: Path, script: Path) -> model.Experiment:
    answer = CliRunner().invoke(app, ["init", str(script), "--folder", str(folder)])
    assert answer.exit_code == 0, answer.output
    name = scaffold.name_of(script)
    assert answer.output.rstrip().endswith(f"streamproof doctor chaos/{name}.yaml")
    found = model.load(folder / "chaos" / f"{name}.yaml")
    assert plan(found).injections
    return found


def test_a_spark_job_that_appends_by_jdbc(tmp_path: Path) -> None:
    job = _experiment(tmp_path, APPEND).job
    assert job is not None
    assert job["delivers"] == {"postgres": {"table": "orders", "identity": {"column": "order_id"}}}
    assert job["progress"] == {"spark_checkpoint": "{checkpoint}"}
    assert job["env"] == {
        "BOOTSTRAP_SERVERS": "{bootstrap_servers}",
        "TOPIC": "{input_topic}",
        "BATCH": "{batch_records}",
        "CHECKPOINT": "{checkpoint}",
        "JDBC_URL": "{jdbc_url}",
        "SPARK_JARS": "{spark_jars}",
    }


def test_a_loop_on_kafka_that_writes_in_transactions(tmp_path: Path) -> None:
    job = _experiment(tmp_path, FORWARD).job
    assert job is not None
    assert job["transactions"] is True
    assert "env" not in job or job["env"] == {}, "it reads streamproof's own variables"


def test_what_somebody_has_to_look_at_is_said(tmp_path: Path) -> None:
    script = tmp_path / "my job.py"
    script.write_text(OWN)
    answer = CliRunner().invoke(app, ["init", str(script), "--folder", str(tmp_path)])
    assert answer.exit_code == 0, answer.output
    assert "names kafka.example:9092 itself" in answer.output
    assert "set SHOP_MODE in `env`" in answer.output
    job = model.load(tmp_path / "chaos" / "my-job.yaml").job
    assert job is not None
    assert job["command"] == ["{python}", "my job.py"]
    assert job["env"] == {"ORDERS_TOPIC": "{input_topic}", "SHOP_MODE": "", "CHECKPOINT_DIR": "{checkpoint}"}
    assert job["delivers"]["files"] == {"path": "out", "format": "parquet", "identity": {"column": "id"}, "spark_log": False}


def test_csv_of_spark_has_sparks_own_escape(tmp_path: Path) -> None:
    script = tmp_path / "orders.py"
    script.write_text("import pyspark\nframe.writeStream.format('csv').option('checkpointLocation', 'x').start('out')\n")
    job = _experiment(tmp_path / "project", script).job
    assert job is not None
    assert (job["delivers"]["files"]["format"], job["delivers"]["files"]["escape"]) == ("csv", "\\")


def test_a_spark_job_that_writes_an_iceberg_table(tmp_path: Path) -> None:
    job = _experiment(tmp_path, ROOT / "examples" / "orders_to_iceberg" / "orders.py").job
    assert job is not None
    assert job["delivers"] == {"iceberg": {"table": "shop.orders", "identity": {"column": "order_id"}}}


def test_a_spark_job_that_writes_a_delta_table(tmp_path: Path) -> None:
    job = _experiment(tmp_path, ROOT / "examples" / "orders_to_delta" / "orders.py").job
    assert job is not None
    assert job["delivers"] == {"delta": {"path": "out", "identity": {"column": "order_id"}}}


def test_a_job_in_another_language_and_no_job_at_all(tmp_path: Path) -> None:
    binary = tmp_path / "forwarder.go"
    binary.write_text("package main")
    job = _experiment(tmp_path / "go", binary).job
    assert job is not None
    assert job["command"] == [str(binary)]
    answer = CliRunner().invoke(app, ["init", "--folder", str(tmp_path / "none")])
    assert answer.exit_code == 0, answer.output
    assert model.load(tmp_path / "none" / "chaos" / "job.yaml").label == "job"


def test_what_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("mine\n")
    _experiment(tmp_path, FORWARD)
    assert (tmp_path / ".gitignore").read_text() == "mine\n"
    before = (tmp_path / "chaos" / "forward.yaml").read_text()
    answer = CliRunner().invoke(app, ["init", str(FORWARD), "--folder", str(tmp_path)])
    assert isinstance(answer.exception, BadInput)
    assert "is there already" in str(answer.exception)
    assert (tmp_path / "chaos" / "forward.yaml").read_text() == before


@pytest.mark.parametrize(("text", "told"), [(None, "cannot be read"), (b"def (:", "line 1 is none"), (b"\xff\xfe\x00", "cannot be read")])
def test_a_script_that_cannot_be_read_is_refused_and_nothing_is_made(
    text: bytes | None, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "job.py").write_bytes(text)
    monkeypatch.setattr("sys.argv", ["streamproof", "init", str(tmp_path / "job.py"), "--folder", str(tmp_path / "project")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "project").exists()
