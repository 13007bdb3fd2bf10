"""Shape what leaves a container, by the kernel's queueing disciplines: ``python -m streamproof.testbed.shaping``.

It runs in a short-lived container that shares the network of the one that is shaped (``containers.in_its_network``), because there the
right to do so is confined to that network. One argument, as JSON, says what is to be done. The answer is JSON too: for each interface its
discipline and the kernel's counters.

- ``{"do": "set", "kind": "tbf", ...}``: a token bucket filter, ``rate`` in bytes/s
- ``{"do": "set", "kind": "netem", ...}``: ``loss``, ``duplicate``, ``reorder`` in percent, ``delay`` in µs
- ``{"do": "clear"}``: the kernel's own discipline again
- ``{"do": "show"}``

Checked against: Linux 6.1 (tc-tbf(8), tc-netem(8)), pyroute2 0.9.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Literal

Kind = Literal["tbf", "netem"]
BURST_BYTES = 16 * 1024
"""More than a packet has, and little beside what a probe sends."""
LATENCY = "400ms"
OURS: tuple[Kind, ...] = ("tbf", "netem")
LOOPBACK = "lo"
ROOT = 0xFFFFFFFF  # TC_H_ROOT of linux/pkt_sched.h


def done(order: dict[str, Any]) -> list[dict[str, Any]]:
    """What the interfaces look like once ``order`` was carried out. Raises pyroute2's NetlinkError when the kernel refuses."""
    from pyroute2 import IPRoute

    with IPRoute() as kernel:
        names = {link["index"]: str(link.get_attr("IFLA_IFNAME")) for link in kernel.get_links()}
        shaped = {index: name for index, name in names.items() if name == order.get("interface") or name != LOOPBACK}
        for index in shaped:
            if order["do"] == "show":
                continue
            if any(discipline.get_attr("TCA_KIND") in OURS for discipline in kernel.get_qdiscs(index=index)):
                kernel.tc("del", index=index, parent=ROOT)
            if order["do"] == "set":
                kernel.tc("add", order["kind"], index=index, **_settings(order))
        return [_read(name, discipline) for index, name in shaped.items() for discipline in kernel.get_qdiscs(index=index)]


def _settings(order: dict[str, Any]) -> dict[str, Any]:
    if order["kind"] == "tbf":
        return {"rate": int(order["rate"]), "burst": BURST_BYTES, "latency": LATENCY}
    return {name: order[name] for name in ("loss", "duplicate", "reorder", "delay") if order.get(name)}


def _read(name: str, discipline: Any) -> dict[str, Any]:
    options, statistics = discipline.get_attr("TCA_OPTIONS"), discipline.get_attr("TCA_STATS2")
    queue = statistics.get_attr("TCA_STATS_QUEUE") if statistics is not None else {}
    limits = options.get_attr("TCA_TBF_PARMS") if discipline.get_attr("TCA_KIND") == "tbf" else None
    return {
        "interface": name,
        "kind": discipline.get_attr("TCA_KIND"),
        "rate": limits["rate"] if limits else None,
        "drops": int(queue.get("drops", 0)),
        "overlimits": int(queue.get("overlimits", 0)),
    }


def main() -> None:
    print(json.dumps(done(json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
