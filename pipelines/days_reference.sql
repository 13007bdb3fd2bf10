-- How many flights each day has, by their own times.
SELECT substr(time_hour, 1, 10) AS day, count(*) AS flights FROM input GROUP BY ALL
