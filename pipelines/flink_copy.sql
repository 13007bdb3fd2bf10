-- Another job than flink_forward.sql: a second copy of the same orders, whose transactional ids begin as its operator has said.
CREATE TABLE orders (
  `key` BYTES,
  `value` BYTES
) WITH (
  'connector' = 'kafka',
  'topic' = '{input_topic}',
  'properties.bootstrap.servers' = '{bootstrap_servers}',
  'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'raw', 'key.fields' = 'key',
  'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'
);

CREATE TABLE copied (
  `key` BYTES,
  `value` BYTES
) WITH (
  'connector' = 'kafka',
  'topic' = '{output_topic}',
  'properties.bootstrap.servers' = '{bootstrap_servers}',
  'key.format' = 'raw', 'key.fields' = 'key',
  'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '{job}.{prefix}',
  'properties.transaction.timeout.ms' = '{transaction_timeout_ms}'
);

INSERT INTO copied SELECT `key`, `value` FROM orders;
