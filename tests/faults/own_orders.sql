CREATE TABLE orders (order_id uuid PRIMARY KEY, amount bigint, loaded_at timestamptz DEFAULT now());
