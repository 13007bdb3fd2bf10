-- How many flights each carrier has had, and how many miles. The state is Flink's; each result replaces the one before it.
-- What is asked of each result behind the GROUP BY takes time, so that records wait before it and the barriers come unevenly.
CREATE TABLE flights (
  carrier STRING,
  distance BIGINT
) WITH (
  'connector' = 'kafka',
  'topic' = '{input_topic}',
  'properties.bootstrap.servers' = '{bootstrap_servers}',
  'properties.group.id' = '{group}',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json'
);

CREATE TABLE totals (
  carrier STRING,
  flights BIGINT,
  miles BIGINT,
  PRIMARY KEY (carrier) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = '{output_topic}',
  'properties.bootstrap.servers' = '{bootstrap_servers}',
  'key.format' = 'json',
  'value.format' = 'json',
  'sink.parallelism' = '2',
  'sink.delivery-guarantee' = 'at-least-once'
);

INSERT INTO totals
SELECT carrier, flights + CASE SHA512(REPEAT(carrier || CAST(flights AS STRING), 4000)) WHEN '' THEN 1 ELSE 0 END, miles
FROM (SELECT carrier, COUNT(*) AS flights, SUM(distance) AS miles FROM flights GROUP BY carrier);
