CREATE TABLE totals (carrier text PRIMARY KEY, flights bigint, txid bigint, previous bigint)
