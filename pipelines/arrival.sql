CREATE TABLE batches (number bigint PRIMARY KEY);
CREATE TABLE arrived (at timestamptz, carrier text, flights bigint, miles bigint, PRIMARY KEY (at, carrier));
CREATE TABLE totals (carrier text PRIMARY KEY, flights bigint, miles bigint);
CREATE TABLE days (day text PRIMARY KEY, flights bigint)
