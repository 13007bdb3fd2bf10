-- What a job must have computed in the end that counts the flights of each plane.
SELECT coalesce(tailnum, '') AS plane, count(*) AS flights FROM input GROUP BY ALL
