"""Pulls a second in a Ray cluster beside a local lane, on this machine's processors.

    python benchmarks/ray_lanes.py [--problem vector_add] [--pulls 24] [--output results/ray.md]

The same run three times: one local lane, one lane in a cluster of this machine alone, and two. Times are from the first pull
that is chosen to the end of the last, so that starting is left out; it has a column of its own. With two processors two lanes
share them, and what they gain is waiting that overlaps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {
    "one local lane": ("--device", "cpu"),
    "one lane in a cluster": ("--device", "cpu", "--lanes", "ray", "--address", "local"),
    "two local lanes": ("--device", "cpu,cpu"),
    "two lanes in a cluster": ("--device", "cpu,cpu", "--lanes", "ray", "--address", "local"),
}


def measure(problem: str, pulls: int, way: tuple[str, ...]) -> tuple[float, float, int]:
    """(seconds until the first pull is chosen, seconds from there to the last reward, pulls)."""
    with tempfile.TemporaryDirectory(prefix="kbtui-benchmark-") as home:
        command = [
            sys.executable, "-m", "kbtui", "run", problem, "--headless", "--json", "--no-dispatch",
            "--iterations", str(pulls), "--parallel", "2", *way,
        ]  # fmt: skip
        began = time.perf_counter()
        done = subprocess.run(
            command, env={**os.environ, "KBTUI_HOME": str(Path(home))}, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)}: {done.stderr.strip().splitlines()[-1]}")
        total = time.perf_counter() - began
    events = [json.loads(line) for line in done.stdout.splitlines()]
    chosen = [event["t"] for event in events if event.get("type") == "selected"]
    rewarded = [event["t"] for event in events if event.get("type") == "rewarded"]
    spent = rewarded[-1] - chosen[0]
    return total - spent, spent, len(rewarded)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problem", default="vector_add")
    parser.add_argument("--pulls", type=int, default=24)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    lines = ["| lanes | pulls | seconds | pulls/s | start and end, s |", "| --- | --- | --- | --- | --- |"]
    for name, way in WAYS.items():
        rest, spent, pulls = measure(given.problem, given.pulls, way)
        lines.append(f"| {name} | {pulls} | {spent:.1f} | {pulls / spent:.2f} | {rest:.1f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    load = os.getloadavg()[0]
    text = f"{given.problem}, {os.cpu_count()} processors, load {load:.1f}\n\n" + "\n".join(lines) + "\n"
    print(text)
    if given.output is not None:
        given.output.write_text(text)


if __name__ == "__main__":
    main()
