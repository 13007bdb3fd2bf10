-- What the job must have computed: DuckDB runs this over all records that were sent.
SELECT substr(time_hour, 1, 10) AS day, origin, count(*) AS flights, sum(distance) AS miles
FROM input
GROUP BY ALL
