CREATE TABLE orders (order_id text PRIMARY KEY, carrier text, origin text, dest text, distance int);
