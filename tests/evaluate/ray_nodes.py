"""A Ray cluster of two nodes on loopback, one processor each: `python ray_nodes.py`. Prints its address and the pid of the second
node's raylet; ends with its input."""

from __future__ import annotations

import json
import sys
import tempfile

from ray.cluster_utils import Cluster

STORE_BYTES = 80 << 20


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kbtui-nodes-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        _serve(folder)  # in /tmp: the paths of its sockets may have 107 bytes


def _serve(folder: str) -> None:
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, include_dashboard=False, temp_dir=folder)
        second = cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        cluster.wait_for_nodes()
        (raylet,) = second.all_processes["raylet"]
        print(json.dumps({"address": cluster.address, "raylet": raylet.process.pid}), flush=True)
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
