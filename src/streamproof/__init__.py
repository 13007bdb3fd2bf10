"""Break a streaming job on purpose, and prove record by record what it delivered."""
