"""What `kbtui run --headless` prints: lines for people, or every event as JSON."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kbtui import paths
from kbtui.cli import output
from kbtui.state.events import Event, Generated, encode, is_durable
from kbtui.state.records import BestSummary, Summary
from kbtui.state.run_state import RunState
from kbtui.text import plural


class EventLines:
    """One durable event per line, `type` first; the summary object last."""

    def show(self, event: Event) -> None:
        if is_durable(event):
            sys.stdout.write(encode(event).decode() + "\n")
            sys.stdout.flush()

    def finish(self, summary: Summary) -> None:
        output.json(summary)


class Progress:
    """The run's log as it grows, in the words of the cockpit; what came out of it last.

    `state` is what the run was before: of a run that goes on, events speak of candidates that were made then.
    """

    def __init__(self, state: RunState | None = None) -> None:
        self._state = state if state is not None else RunState()

    def show(self, event: Event) -> None:
        if not is_durable(event):
            return
        last = self._state.log[-1] if self._state.log else None
        self._state.apply(event)
        fresh = []
        for entry in reversed(self._state.log):
            if entry is last:
                break
            fresh.append(entry)
        for entry in reversed(fresh):
            self._say(entry.t, entry.text if entry.level in ("info", "act") else f"{entry.level}: {entry.text}")
        if isinstance(event, Generated) and event.parent_id is not None:
            # the tree shows this in the cockpit, so the log does not say it
            self._say(
                event.t,
                f"#{event.candidate_id} {event.strategy or event.generator} · {event.move}, from #{event.parent_id}",
            )
        sys.stdout.flush()

    @staticmethod
    def _say(t: float, text: str) -> None:
        output.line(f"{time.strftime('%H:%M:%S', time.localtime(t))}  {text}")

    def finish(self, summary: Summary) -> None:
        for text in summary_lines(summary):
            output.line(text)


def summary_lines(summary: Summary) -> list[str]:
    """The summary for people; a modelled figure says so. The last line says where the exported kernel is, if there is one."""
    made = f"{plural(summary.pulls, 'pull')}, {plural(summary.candidates, 'candidate')}, {summary.correct} correct"
    lines = ["", f"{summary.run_id}: {made}; stopped by {summary.stopped_by}"]
    if len(summary.devices) > 1:
        out = f"; {', '.join(summary.dropped)} fell out" if summary.dropped else ""
        lines.append(f"on {len(summary.devices)} x {summary.device} as {', '.join(summary.devices)}{out}")
    if summary.cost_usd or summary.tokens:
        lines.append(f"cost ${summary.cost_usd:.2f}, {plural(summary.tokens, 'token')}")
    if summary.best is None:
        return [*lines, "no candidate was verified and timed"]
    if summary.baseline_id:
        lines.append(f"baseline #{summary.baseline_id}, the first correct version: there was no kernel to begin with")
    best = summary.best
    return [*lines, f"best #{best.candidate_id}  {figure(best)}", exported(summary.run_id, best.path)]


def exported(run_id: str, path: str) -> str:
    """Where a run's best kernel is. `path` is what the run recorded: of one that was copied here, a path of another machine."""
    here = paths.run_dir(run_id) / "best" / "kernel.py"
    if not Path(path).is_file() and not here.is_file():
        return f"exported elsewhere, to {path}: `kbtui export {run_id}` writes it here"
    return f"exported to {path if Path(path).is_file() else here}"


def figure(best: BestSummary) -> str:
    """`1.42x [1.39, 1.45] faster` for measured times, `~1.30 est not worse (modelled)` for estimates."""
    if best.speedup is not None:
        interval = f" [{best.low:.2f}, {best.high:.2f}]" if best.low is not None and best.high is not None else ""
        return f"{best.speedup:.2f}x{interval} {best.verdict}"
    if best.estimate is not None:
        return f"~{best.estimate:.2f} est {best.verdict} (modelled, not measured)"
    return best.verdict
