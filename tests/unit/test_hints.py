"""What to do about an error that a job printed last."""

from __future__ import annotations

import pytest

from streamproof.run.hints import hint


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("ModuleNotFoundError: No module named 'orders.model'", "install orders.model into the job's own environment"),
        ("ImportError: cannot import name 'x'", "name the job's own in `interpreter`"),
        ("KeyError: 'ORDERS_TOPIC'", "it looks for a variable ORDERS_TOPIC: set it in `env`"),
        ("KeyError: 'amount'", "no record has a field amount: send input of its own"),
        ("python3: can't open file '/x/job.py': [Errno 2] No such file or directory", "there is no file /x/job.py"),
        ("pyspark.errors.exceptions.base.PySparkRuntimeError: [JAVA_GATEWAY_EXITED] Java gateway process exited", "Spark found no Java"),
        ("AnalysisException: Failed to find data source: kafka.", "Spark lacks a package for kafka: give it the jars in {spark_jars}"),
        ("java.sql.SQLException: No suitable driver", "Spark lacks PostgreSQL's driver"),
        ("psycopg.OperationalError: fe_sendauth: no password supplied", "take the address from {jdbc_url} or {postgres}"),
        ("KafkaError{code=UNKNOWN_TOPIC_OR_PART,val=3}", "read {input_topic} and write {output_topic}"),
        ("ValueError: something of its own", ""),
        ("", ""),
    ],
)
def test_an_error_that_is_known_comes_with_what_to_do(error: str, advice: str) -> None:
    assert hint(error).startswith(advice) if not advice.startswith("name") else advice in hint(error)
