CREATE TABLE orders (order_id text, carrier text, origin text, dest text, distance int);
