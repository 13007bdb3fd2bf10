-- What a job must have computed in the end that counts the flights of each carrier, and their miles.
SELECT carrier, count(*) AS flights, sum(distance) AS miles FROM input GROUP BY ALL
