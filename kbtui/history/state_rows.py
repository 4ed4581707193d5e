"""From the folded state of a run to rows of the history database: the run, its cases, candidates and pulls. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from kbtui.history.event_rows import Kinds, Row, choices, in_order, timestamp
from kbtui.state import events as e
from kbtui.state.records import Reading, Signature, Timing
from kbtui.state.run_state import Candidate, Pull, RunState


class Times:
    """What began and ended pulls, which the fold does not keep."""

    def __init__(self) -> None:
        self.begun: dict[int, tuple[float, str]] = {}
        """Seconds since the epoch, and the policy's reason."""
        self.ended: dict[int, e.Rewarded | e.PullDropped] = {}

    def take(self, kinds: Kinds) -> None:
        for begun in choices(kinds):
            self.begun[begun.pull] = (begun.t, begun.reason)
        for ended in in_order(kinds, (e.Rewarded, e.PullDropped)):
            if isinstance(ended, e.Rewarded | e.PullDropped):
                self.ended.setdefault(ended.pull, ended)


def run(run_id: str, state: RunState) -> list[Row]:
    started = state.started
    if started is None:
        return []
    best = state.best.timing if state.best is not None else None
    return [
        {
            "run_id": run_id,
            "problem": started.problem.name,
            "problem_path": started.problem.path,
            "problem_digest": started.problem.digest,
            "entry": started.problem.entry,
            "device": started.device.name,
            "device_kind": started.device.kind,
            "device_uuid": started.device.uuid,
            "devices": started.lanes,
            "target": started.device.target,
            "timing": started.timing,
            "policy": started.policy,
            "policy_parameters": started.policy_parameters,
            "generator": started.generator,
            "model": started.model,
            "objective": started.objective,
            "seed": started.seed,
            "iterations": state.iterations,
            "budget_usd": state.budget_usd,
            "parallel": started.parallel,
            "host": started.host,
            "user_name": started.user,
            "python": started.python,
            "arguments": started.arguments,
            "versions": started.versions,
            "isolation": started.isolation,
            "started_at": timestamp(state.first_t),
            "last_at": timestamp(state.last_t),
            "elapsed_s": state.elapsed,
            "status": state.status,
            "stopped_by": state.stopped_by,
            "pulls": state.pulls_ended,
            "candidates": len(state.candidates),
            "correct": len(state.frontier),
            "baseline_id": state.baseline_id,
            "best_id": state.best_id,
            "best_move": state.best.move if state.best else None,
            "best_strategy": state.best.strategy if state.best else None,
            "best_verdict": best.verdict if best else None,
            "best_ratio": best.ratio if best else None,
            "best_low": best.low if best else None,
            "best_high": best.high if best else None,
            "best_estimate": best.estimate if best else None,
            "cost_usd": state.cost_usd,
            "tokens": state.tokens,
        }
    ]


def cases(run_id: str, state: RunState) -> list[Row]:
    if state.started is None:
        return []
    return [
        {
            "run_id": run_id,
            "case_name": case.name,
            "fields": case.fields,
            "weight": case.weight,
            "bytes_moved": case.bytes_moved,
            "operations": case.operations,
        }
        for case in state.started.problem.cases
    ]


def candidate(run_id: str, c: Candidate) -> Row:
    return {
        "run_id": run_id,
        "candidate_id": c.id,
        "parent_id": c.parent_id,
        "pull": c.pull,
        "strategy": c.strategy,
        "cluster": c.cluster,
        "generator": c.generator,
        "model": c.model,
        "by_whom": c.by,
        "move": c.move,
        "detail": c.detail,
        "born_at": timestamp(c.born),
        "stage": c.stage,
        "status": c.status,
        "reward": c.reward,
        "cost_usd": c.cost_usd,
        "tokens": c.tokens,
        "tags": c.tags,
        "note": c.note,
        "path": c.path,
        "source": c.source,
        "source_digest": c.source_digest,
        "syntax_digest": c.syntax_digest,
        **_checks(c),
        **_timing(c.timing),
        "device": c.device,
        **_signature(c.signature),
    }


def _checks(c: Candidate) -> Row:
    pruned, compiled, verified = c.pruned, c.compilation, c.verification
    failed = compiled if compiled is not None and not compiled.ok else None
    return {
        "pruned_stage": pruned.stage if pruned else None,
        "pruned_reason": pruned.reason if pruned else None,
        "pruned_value": pruned.value if pruned else None,
        "pruned_limit": pruned.limit if pruned else None,
        "compile_ok": compiled.ok if compiled else None,
        "compile_outcome": failed.outcome if failed else None,
        "compile_reason": failed.reason if failed else None,
        "compile_s": compiled.seconds if compiled else None,
        "verdict": verified.verdict if verified else None,
        "verdict_owner": verified.owner if verified else None,
        "verdict_stage": verified.stage if verified else None,
        "verdict_reason": verified.reason if verified else None,
        "cases_checked": verified.cases_checked if verified else None,
        "error": verified.error if verified else None,
        "error_allowed": verified.allowed if verified else None,
        "worst_case": verified.worst_case if verified else None,
        "not_checked": verified.not_checked if verified else None,
        "verify_s": verified.seconds if verified else None,
    }


def _timing(t: Timing | None) -> Row:
    return {
        "speed_verdict": t.verdict if t else None,
        "ratio": t.ratio if t else None,
        "low": t.low if t else None,
        "high": t.high if t else None,
        "parent_ratio": t.parent_ratio if t else None,
        "pairs": t.pairs if t else None,
        "noise": t.noise if t else None,
        "total_ms": _total([case.ms for case in t.cases]) if t else None,
        "estimate": t.estimate if t else None,
        "parent_estimate": t.parent_estimate if t else None,
        "total_estimate_ms": _total([case.estimate_ms for case in t.cases]) if t else None,
        "suspicious": t.suspicious if t else None,
        "time_s": t.seconds if t else None,
    }


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if values and len(known) == len(values) else None


def _signature(signature: Signature | None) -> Row:
    row: Row = {"signature_source": None}
    for name in ("sm", "dram", "l2"):
        reading: Reading = getattr(signature, name) if signature is not None else Reading()
        modelled = reading.source == "model"
        row[f"{name}_percent"] = None if modelled else reading.percent
        row[f"{name}_estimate_percent"] = reading.percent if modelled else None
        if row["signature_source"] in (None, "unknown") and signature is not None:
            row["signature_source"] = reading.source
    return row


def pull(run_id: str, state: RunState, p: Pull, times: Times) -> Row:
    begun, ended = times.begun.get(p.number), times.ended.get(p.number)
    dropped = ended if isinstance(ended, e.PullDropped) else None
    rewarded = ended if isinstance(ended, e.Rewarded) else None
    return {
        "run_id": run_id,
        "pull": p.number,
        "cluster": p.cluster,
        "strategy": p.strategy,
        "parent_id": p.parent_id,
        "forced": p.forced,
        "chosen_because": begun[1] if begun else None,
        "candidate_id": p.candidate_ids[-1] if p.candidate_ids else None,
        "candidates": len(p.candidate_ids),
        "ended": p.ended,
        "seen": p.seen,
        "reward": p.reward,
        "timing": state.started.timing if state.started else None,
        "outcome": p.outcome,
        "dropped_owner": dropped.owner if dropped else None,
        "dropped_reason": dropped.reason if dropped else None,
        "arm_mean": rewarded.mean if rewarded else None,
        "arm_pulls": rewarded.pulls if rewarded else None,
        "started_at": timestamp(begun[0]) if begun else None,
        "ended_at": timestamp(ended.t) if ended else None,
    }
