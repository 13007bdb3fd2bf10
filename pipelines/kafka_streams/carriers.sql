-- What Carriers.java must have computed in the end.
SELECT carrier, count(*) AS flights, sum(distance) AS miles FROM input GROUP BY ALL
