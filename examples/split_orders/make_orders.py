"""Writes orders.jsonl: 4,000 orders of 1 to 3 items, one in five of them cancelled, some of customers whom nobody knows."""

from __future__ import annotations

import json
import random
from pathlib import Path

drawn = random.Random(6)
with Path(__file__).with_name("orders.jsonl").open("w") as file:
    for number in range(4000):
        order = {
            "number": number,
            "customer": f"c{drawn.randrange(40)}",
            "status": "cancelled" if drawn.random() < 0.2 else "paid",
            "items": [drawn.choice(("tea", "cup", "pot")) for _ in range(drawn.randint(1, 3))],
        }
        file.write(json.dumps(order) + "\n")
