CREATE TABLE daily (day text, origin text, flights bigint, miles bigint, PRIMARY KEY (day, origin))
