"""From topic to topic by PyFlink: what flink_forward.sql does, from Python. It needs apache-flink, and knows nothing of streamproof."""

from __future__ import annotations

import os

from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = """
CREATE TABLE orders (`key` BYTES, `value` BYTES) WITH (
  'connector' = 'kafka', 'topic' = '{input_topic}', 'properties.bootstrap.servers' = '{servers}', 'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'raw', 'key.fields' = 'key', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY')
"""
SINK = """
CREATE TABLE shipped (`key` BYTES, `value` BYTES) WITH (
  'connector' = 'kafka', 'topic' = '{output_topic}', 'properties.bootstrap.servers' = '{servers}',
  'key.format' = 'raw', 'key.fields' = 'key', 'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{job}.sink',
  'properties.transaction.timeout.ms' = '{timeout}')
"""


def main() -> None:
    known = {
        "servers": os.environ["STREAMPROOF_BOOTSTRAP_SERVERS"],
        "input_topic": os.environ["STREAMPROOF_INPUT_TOPIC"],
        "output_topic": os.environ["STREAMPROOF_OUTPUT_TOPIC"],
        "group": os.environ["STREAMPROOF_GROUP"],
        "job": os.environ["STREAMPROOF_JOB"],
        "timeout": os.environ["STREAMPROOF_TRANSACTION_TIMEOUT_MS"],
    }
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    tables.execute_sql(SOURCE.format(**known))
    tables.execute_sql(SINK.format(**known))
    tables.execute_sql("INSERT INTO shipped SELECT `key`, `value` FROM orders")


if __name__ == "__main__":
    main()
