"""Claim: the main job works on this machine. One command runs what it takes and writes down what happened.

    python benchmarks/main_job.py                                    on a GPU machine, below nine minutes
    python benchmarks/main_job.py --device cpu --iterations 3 --out /tmp/main-job
    python benchmarks/main_job.py --home /tmp/kept --without-tests    the runs stay, to be looked at

Steps: `kbtui doctor`, a headless run of each problem, the history asked in SQL, the tests of evaluate/ that need a GPU. Looks
at memory of the GPU and at processes before and after. Everything goes to a data folder of its own. Writes
`main-job-<device>.md` and `.jsonl` (one object for each step) to `--out`; exit status 1 when a step failed or left
something behind.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kbtui.evaluate.inlane.sandbox import become_subreaper
from kbtui.text import clean_line

ROOT = Path(__file__).resolve().parents[1]
TESTS_S = 240.0
"""Most that the tests may take of the time; the rest is for the runs."""
LEFT_BYTES = 64 << 20
"""GPU memory in use may differ by so much afterwards: the driver keeps a little of its own."""
QUERY = """
select run_id, strategy, move, verdict, speed_verdict, ratio, low, high, pairs, noise, total_ms, estimate,
       compile_s, verify_s, time_s, sm_percent, dram_percent, signature_source
from candidates order by run_id, candidate_id
"""
VERSIONS = "import json, sys, torch, triton; print(json.dumps([sys.version.split()[0], torch.__version__, triton.__version__]))"


class Steps:
    """Runs one step after the other until `deadline` (monotonic seconds), each in the environment given."""

    def __init__(self, environment: dict[str, str], deadline: float) -> None:
        self._environment = environment
        self._deadline = deadline
        self.done: list[dict[str, Any]] = []

    def run(self, name: str, command: list[str], most_s: float = float("inf")) -> str:
        """What the command printed, up to the time that is left; kept with its exit status (None: ended for time)."""
        began = time.monotonic()
        limit = min(most_s, max(1.0, self._deadline - began))
        try:
            found = subprocess.run(
                command, env=self._environment, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False
            )
            status, out, err = found.returncode, found.stdout, found.stderr
        except subprocess.TimeoutExpired as expired:
            status, out, err = None, _text(expired.stdout), _text(expired.stderr)
        step = {"step": name, "command": command, "status": status, "seconds": round(time.monotonic() - began, 2)}
        self.done.append({**step, "said": _last_line(out), "complained": _last_line(err)})
        print(f"{name:<24}{'ok' if status == 0 else f'status {status}':<12}{step['seconds']:>8.1f} s", flush=True)
        return out

    def note(self, **more: Any) -> None:
        """Add to the step that ran last."""
        self.done[-1].update(more)


def _text(output: str | bytes | None) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output or ""


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return clean_line(lines[-1], 300) if lines else ""


# ---------------------------------------------------------------- what the machine looks like


def gpu_state(device: str) -> dict[str, Any]:
    """Name, driver, bytes in use and processes of the GPU; {} without one."""
    if device == "cpu":
        return {}
    import pynvml

    pynvml.nvmlInit()
    try:
        index = int(device.partition(":")[2] or 0)
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        return {
            "name": pynvml.nvmlDeviceGetName(handle),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "used_bytes": int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
            "pids": sorted(int(one.pid) for one in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
    finally:
        pynvml.nvmlShutdown()


def has_gpu() -> bool:
    """Whether NVML finds a GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    pynvml.nvmlShutdown()
    return True


def descendants() -> list[str]:
    """Command lines of every process below this one, which orphans come to: `become_subreaper`."""
    found, todo = [], [os.getpid()]
    while todo:
        parent = todo.pop()
        try:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        except OSError:
            continue
        for child in children:
            todo.append(int(child))
            try:
                state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
                line = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if state != "Z":
                found.append(f"{child} {clean_line(line, 120)}")
    return found


# ---------------------------------------------------------------- the steps


def runs(steps: Steps, options: argparse.Namespace, device: str) -> None:
    """A headless run of each problem; its summary and the time of its stages are kept with the step."""
    for problem in options.problems:
        command = [sys.executable, "-m", "kbtui", "run", problem, "--headless", "--json", "--device", device]
        command += ["--iterations", str(options.iterations), "--python", options.python]
        output = steps.run(f"run {problem}", command)
        events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        summary = next((event for event in reversed(events) if "best" in event and "type" not in event), None)
        steps.note(summary=summary, events=len(events), stages=_stages(events))


def _stages(events: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds in each stage over all candidates, as the events tell them."""
    inside = {"compiled": "compilation", "verified": "verification", "timed": "timing"}
    found: dict[str, float] = {}
    for event in events:
        field = inside.get(event.get("type", ""))
        if field is not None:
            found[field] = round(found.get(field, 0.0) + float(event[field].get("seconds") or 0.0), 2)
    return found


def tests(steps: Steps) -> None:
    """The tests that need a GPU; where there is none, all of them are skipped with their reason."""
    folder = str(ROOT / "tests" / "evaluate")
    # without our options: a GPU machine need not have every plugin that they name
    command = [sys.executable, "-m", "pytest", "-m", "gpu", folder, "-q", "-o", "addopts=", "-p", "no:cacheprovider"]
    output = steps.run("gpu tests", command, TESTS_S)
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    steps.note(failed=failed, output=output[-20_000:] if failed or steps.done[-1]["status"] else "")


def history(steps: Steps) -> list[dict[str, Any]]:
    """Every candidate of the runs, from the database."""
    output = steps.run("history sql", [sys.executable, "-m", "kbtui", "history", "sql", QUERY, "--json"])
    try:
        rows: list[dict[str, Any]] = json.loads(output)
    except ValueError:
        rows = []
    steps.note(rows=rows)
    return rows


def trouble(steps: Steps, before: dict[str, Any], after: dict[str, Any], left: list[str]) -> list[str]:
    """What speaks against it, a sentence each."""
    found = [f"{step['step']} ended with status {step['status']}" for step in steps.done if step["status"] != 0]
    found += [f"{step['step']} gave no summary" for step in steps.done if "summary" in step and not step["summary"]]
    found += [f"a process is left: {line}" for line in left]
    more = after.get("used_bytes", 0) - before.get("used_bytes", 0)
    if more > LEFT_BYTES:
        found.append(f"{more >> 20} MiB more of the GPU's memory are in use than before")
    found += [f"process {pid} is new on the GPU" for pid in after.get("pids", []) if pid not in before.get("pids", [])]
    return found


def report(machine: dict[str, Any], steps: Steps, rows: list[dict[str, Any]], bad: list[str]) -> str:
    """The page for people."""
    lines = ["# The main job", "", *(f"- {name}: {value}" for name, value in machine.items()), ""]
    lines += ["| step | status | seconds | last words |", "| --- | --- | --- | --- |"]
    for step in steps.done:
        said = (step["said"] if "summary" not in step and "rows" not in step else "") or step["complained"]
        lines.append(f"| {step['step']} | {step['status']} | {step['seconds']} | {said.replace('|', '/')[:160]} |")
    for step in steps.done:
        if step.get("summary"):
            summary = {name: value for name, value in step["summary"].items() if value not in (None, "")}
            lines += ["", f"## {step['step']}", "", "```json", json.dumps(summary, indent=1), "```"]
            lines += ["", f"Seconds by stage: {step['stages']}; {step['events']} events."]
    if rows:
        names = [name for name in rows[0] if name != "run_id" and any(row[name] is not None for row in rows)]
        lines += ["", "## Candidates", "", f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
        lines += [f"| {' | '.join(_cell(row[name]) for name in names)} |" for row in rows]
    lines += [
        "",
        "## Verdict",
        "",
        *([f"- {sentence}" for sentence in bad] or ["Everything ran, nothing was left behind."]),
    ]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else clean_line(str(value), 60).replace("|", "/")


def main() -> int:
    """0, or 1 when something failed or was left behind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="", help="cuda:N or cpu; the first GPU where there is one")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--problems", nargs="+", default=["softmax", "matmul"])
    parser.add_argument("--python", default=sys.executable, help="the interpreter that has torch and triton")
    parser.add_argument("--seconds", type=float, default=520.0, help="for everything together")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--home", type=Path, help="data folder that is kept; a temporary one without it")
    parser.add_argument("--without-tests", action="store_true", help="they run otherwise")
    options = parser.parse_args()
    device = options.device or ("cuda:0" if has_gpu() else "cpu")
    deadline = time.monotonic() + options.seconds
    become_subreaper()

    before = gpu_state(device)
    with tempfile.TemporaryDirectory() as temporary:
        steps = Steps({**os.environ, "KBTUI_HOME": str(options.home or temporary), "PYTHONUNBUFFERED": "1"}, deadline)
        versions = steps.run("versions", [options.python, "-c", VERSIONS], 120.0)
        steps.run("doctor", [sys.executable, "-m", "kbtui", "doctor", "--json", "--python", options.python], 120.0)
        runs(steps, options, device)
        rows = history(steps)
        if not options.without_tests:
            tests(steps)
    left, after = descendants(), gpu_state(device)

    bad = trouble(steps, before, after, left)
    machine = {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "device": before.get("name", "cpu (modelled)"),
        "driver": before.get("driver", "none"),
        "python, torch, triton": ", ".join(json.loads(versions)) if versions.strip() else "unknown",
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "GPU memory before and after": f"{before.get('used_bytes', 0) >> 20} and {after.get('used_bytes', 0) >> 20} MiB",
        "processes left": len(left),
    }
    options.out.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", str(before.get("name", "cpu")).lower()).strip("-")
    (options.out / f"main-job-{name}.md").write_text(report(machine, steps, rows, bad), "utf-8")
    records = [{"machine": machine, "before": before, "after": after, "left": left, "trouble": bad}, *steps.done]
    (options.out / f"main-job-{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records), "utf-8")
    print("\n".join(bad) or "Everything ran, nothing was left behind.")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
