CREATE TABLE orders (order_id text, amount bigint, loaded_at timestamptz DEFAULT now());
