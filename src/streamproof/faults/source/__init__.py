"""What the source sends: bursts, duplicates, late records, skewed keys."""
