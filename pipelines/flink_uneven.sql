-- How many flights each carrier has had, and how many miles, over two channels as uneven as can be: on one each flight takes some milliseconds, on
-- the other one in a hundred of partition 0 takes a second. What is asked of a flight before it is sent to the count of its carrier finds nothing;
-- it takes its time, which grows with the square of the text.
CREATE TABLE flights (
  carrier STRING,
  distance BIGINT,
  `partition` INT METADATA VIRTUAL,
  `offset` BIGINT METADATA VIRTUAL
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
SELECT carrier, COUNT(*) AS flights, SUM(distance) AS miles
FROM flights
WHERE REGEXP_EXTRACT(
  REPEAT(carrier, CASE WHEN MOD(`partition`, 2) = 1 THEN 800 WHEN `partition` = 0 AND MOD(`offset`, 100) = 0 THEN 11000 ELSE 1 END), '.*!', 0
) IS NULL
GROUP BY carrier;
