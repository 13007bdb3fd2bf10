-- From topic to topic on Flink: each record once, with where it came from in its headers. The value goes through byte for byte.
CREATE TABLE orders (
  `key` BYTES,
  `value` BYTES,
  `partition` INT METADATA VIRTUAL,
  `offset` BIGINT METADATA VIRTUAL
) WITH (
  'connector' = 'kafka',
  'topic' = '{input_topic}',
  'properties.bootstrap.servers' = '{bootstrap_servers}',
  'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset',
  'scan.topic-partition-discovery.interval' = '{discovery}',
  'key.format' = 'raw', 'key.fields' = 'key',
  'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY'
);

CREATE TABLE shipped (
  `key` BYTES,
  `value` BYTES,
  `headers` MAP<STRING, BYTES> METADATA
) WITH (
  'connector' = 'kafka',
  'topic' = '{output_topic}',
  'properties.bootstrap.servers' = '{bootstrap_servers}',
  'key.format' = 'raw', 'key.fields' = 'key',
  'value.format' = 'raw', 'value.fields-include' = 'EXCEPT_KEY',
  'sink.delivery-guarantee' = '{guarantee}',
  'sink.transactional-id-prefix' = '{job}.sink',
  'properties.transaction.timeout.ms' = '{transaction_timeout_ms}'
);

INSERT INTO shipped
SELECT `key`, `value`, MAP['partition', ENCODE(CAST(`partition` AS STRING), 'UTF-8'), 'offset', ENCODE(CAST(`offset` AS STRING), 'UTF-8')]
FROM orders;
