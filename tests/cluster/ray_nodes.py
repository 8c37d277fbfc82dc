"""Run a Ray cluster on this machine, in a process of its own, until its stdin is closed.

Writes the address on the first line. Each line `add` on stdin adds a node with one CPU, whose raylet's process id is
written. Actors need one CPU, so each node has room for one.
"""

from __future__ import annotations

import sys
from typing import Any

from ray.cluster_utils import Cluster

STORE_BYTES = 100 << 20
# Nodes that are killed refuse connections and are noticed within five seconds; slow ones have half a minute to answer.
DETECTION = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 30_000,
    "health_check_failure_threshold": 5,
}


def main() -> None:
    head = {"num_cpus": 0, "object_store_memory": STORE_BYTES, "include_dashboard": False, "_system_config": DETECTION}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    print(cluster.address, flush=True)
    nodes: list[Any] = []
    for _ in iter(sys.stdin.readline, ""):
        nodes.append(cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES))
        print(nodes[-1].all_processes["raylet"][0].process.pid, flush=True)
    for node in cluster.list_all_nodes():
        node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


if __name__ == "__main__":
    main()
