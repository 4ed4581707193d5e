"""The clock's turns on a pretended device: what is called how often, on which data, and what an audit sees."""

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from kbtui.evaluate.inlane import clock, reference, verify  # noqa: E402
from kbtui.evaluate.inlane.candidate import CandidateFault  # noqa: E402
from kbtui.evaluate.inlane.launches import Seen  # noqa: E402


class PretendedCuda:
    """Stands in for torch.cuda: a device clock that advances by what the entry says it costs."""

    def __init__(self, capturable=True):
        self.now_ms = 0.0
        self.synchronised = 0
        self.capturable = capturable
        self.captured = None

    def spend(self, ms):
        self.now_ms += ms

    def launch(self, work, captured=True):
        """Do the work, or leave it to the graph that is captured; without `captured` on a stream that no graph sees."""
        if self.captured is None or not captured:
            work()
        else:
            self.captured.append(work)
        self.spend(0.01)

    def install(self, monkeypatch):
        device = self

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing

            def record(self, stream=None):
                self.at = device.now_ms

            def elapsed_time(self, other):
                return other.at - self.at

        class Stream:
            def wait_stream(self, other):
                pass

        class Graph:
            def replay(self):
                device.spend(self.cost)
                for work in self.work:
                    work()

        class Capture:
            def __init__(self, graph, stream):
                self.graph = graph

            def __enter__(self):
                if not device.capturable:
                    raise RuntimeError("operation not permitted when stream is capturing")
                self.before = device.now_ms
                device.captured = []

            def __exit__(self, *_):
                self.graph.cost = device.now_ms - self.before
                self.graph.work, device.captured = device.captured, None

        class Nothing:
            def __init__(self, *_):
                pass

            def __enter__(self):
                pass

            def __exit__(self, *_):
                pass

        def synchronize(*_):
            device.synchronised += 1

        monkeypatch.setattr(clock, "Integrity", Untouched)
        for name, value in {
            "set_device": lambda *_: None,
            "Event": Event,
            "Stream": Stream,
            "CUDAGraph": Graph,
            "graph": Capture,
            "stream": Nothing,
            "current_stream": lambda *_: Stream(),
            "synchronize": synchronize,
            "mem_get_info": lambda *_: (1 << 30, 1 << 31),
            "empty_cache": lambda: None,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)


class Untouched:
    """Stands in for `Integrity`, whose audit hook would stay with the tests' process."""

    def __init__(self, candidate, watched):
        pass

    def renew(self):
        pass

    def trouble(self):
        return ""


class Listening:
    def reset(self):
        pass

    def seen(self, ctx):
        return Seen(("k",), True)


class Context:
    """A job's context with one case; `orders` are given in turn, and results collected."""

    device = "cpu"
    folder = Path("folder")

    def __init__(self, entry, orders=()):
        self.parameters = {"flush_bytes": 1 << 10}
        self._entry = entry
        self._orders = [*orders, {"do": "end", "case": 0}]
        self.results = []

    def load(self):
        return self._entry

    def say(self, stage, text=""):
        pass

    def inputs(self, case):
        return (torch.arange(8, dtype=torch.float32), 3)

    def request(self, kind, **fields):
        assert kind == "turn"
        self.results.append(fields)
        return self._orders.pop(0)


@pytest.fixture
def handed(monkeypatch):
    """What audits hand over."""
    found = []

    def hand_over(ctx, which, returned, inputs, changed, seen):
        found.append((which, returned.clone(), changed, seen))
        return True

    monkeypatch.setattr(verify, "hand_over", hand_over)
    monkeypatch.setattr(clock, "OnDevice", Listening)
    return found


def played(monkeypatch, entry, orders, capturable=True, cost_ms=0.01):
    device = PretendedCuda(capturable)
    device.install(monkeypatch)
    calls = []

    def timed(x, factor):
        calls.append(x.clone())
        device.spend(cost_ms)
        return entry(x, factor)

    context = Context(timed, orders)
    reply = clock.run(context)
    assert reply["turns"] == len(orders)
    return context.results[1:], calls, device


def scale(x, factor):
    return x * factor


PREPARE = {"do": "prepare", "case": 0}
READ = {"do": "read", "case": 0, "cases": [0], "seconds": 0.002}


def test_a_short_kernel_is_launched_many_times_in_a_reading(monkeypatch):
    (prepared, read), _, device = played(monkeypatch, scale, [PREPARE, READ])
    assert prepared["graph"]
    assert prepared["launches"] in (20, 21)
    assert read["readings_ms"][0] == pytest.approx([0.01] * len(read["readings_ms"][0]))
    assert len(read["readings_ms"][0]) * 20 * 0.01 >= 2.0
    assert device.synchronised > 0


def test_a_wrapper_that_is_slower_than_its_kernel_does_not_shorten_the_reading(monkeypatch):
    """Called plainly a call costs 0.1 ms of CPU; in a graph only the device's 0.01 ms are left."""
    device = PretendedCuda()
    device.install(monkeypatch)
    capturing = []
    real_capture = torch.cuda.graph

    class Capture(real_capture):
        def __enter__(self):
            capturing.append(1)
            super().__enter__()

        def __exit__(self, *reason):
            capturing.pop()
            super().__exit__(*reason)

    monkeypatch.setattr(torch.cuda, "graph", Capture)

    def entry(x, factor):
        device.spend(0.01 if capturing else 0.1)
        return x * factor

    context = Context(entry, [PREPARE, READ])
    clock.run(context)
    prepared, read = context.results[1:]
    assert 18 <= prepared["launches"] <= 22
    assert read["readings_ms"][0] == pytest.approx([0.01] * len(read["readings_ms"][0]))


def test_a_long_kernel_is_read_at_least_five_times(monkeypatch):
    (prepared, read), _, _ = played(monkeypatch, scale, [PREPARE, READ], cost_ms=3.0)
    assert prepared["launches"] == 1
    assert len(read["readings_ms"][0]) == clock.LEAST_READINGS


def test_a_call_of_many_milliseconds_is_called_a_few_times(monkeypatch):
    """Of such a loser, at 60 ms a call, ninety calls took eleven seconds."""
    orders = [PREPARE, READ, {"do": "called", "case": 0}]
    (prepared, read, called), calls, device = played(monkeypatch, scale, orders, cost_ms=60.0)
    assert prepared["graph"]
    assert prepared["launches"] == 1
    assert read["readings_ms"][0] == pytest.approx([60.0, 60.0], rel=0.01)
    assert called["called_ms"] > 0
    assert device.now_ms < 20 * 60.0
    assert len(calls) <= 15


def test_what_cannot_be_captured_is_called_and_says_why(monkeypatch):
    (prepared, read), calls, _ = played(monkeypatch, scale, [PREPARE, READ], capturable=False)
    assert not prepared["graph"]
    assert "capturing" in prepared["why_no_graph"]
    assert read["readings_ms"][0] == pytest.approx([0.01] * len(read["readings_ms"][0]))
    assert len(calls) > 20 * len(read["readings_ms"][0])


def test_a_burst_runs_as_often_as_it_was_told(monkeypatch):
    (prepared, burst), _, _ = played(monkeypatch, scale, [PREPARE, {"do": "burst", "case": 0, "rounds": 7}])
    assert burst["calls"] == 7 * prepared["launches"]
    assert burst["device_ms"] == pytest.approx(0.01 * burst["calls"])


def test_warm_up_sees_other_values_at_the_same_address(monkeypatch):
    _, calls, _ = played(monkeypatch, scale, [PREPARE])
    assert torch.equal(calls[0], torch.arange(8, dtype=torch.float32).flip(0))
    assert torch.equal(calls[-1], torch.arange(8, dtype=torch.float32))


def test_an_audit_hands_fresh_outputs_over(monkeypatch, handed):
    audit = {"do": "audit", "case": 0, "call": 2}
    (_, result), _, _ = played(monkeypatch, scale, [PREPARE, audit])
    assert result == {"accepted": True}
    [(which, returned, changed, seen)] = handed
    assert which == (0, 2)
    assert torch.equal(returned, torch.arange(8, dtype=torch.float32) * 3)
    assert (changed, seen.own) == ([], True)


def test_results_kept_by_address_are_wrong_in_an_audit(monkeypatch, handed):
    kept = {}

    def by_address(x, factor):
        return kept.setdefault(x.data_ptr(), x * factor)

    played(monkeypatch, by_address, [PREPARE, READ, {"do": "audit", "case": 0, "call": 0}])
    [(_, returned, _, _)] = handed
    assert not torch.equal(returned, torch.arange(8, dtype=torch.float32) * 3)


@pytest.mark.parametrize("honest", [True, False])
def test_the_audit_of_the_graph_sees_what_the_graph_does(monkeypatch, handed, honest):
    """A wrapper that launches on a stream of its own leaves nothing in the graph; what it computed while it was captured
    lies in the outputs, though."""
    device = PretendedCuda()
    device.install(monkeypatch)

    def entry(x, factor):
        out = torch.empty_like(x)

        device.launch(lambda: torch.mul(x, factor, out=out), captured=honest)
        return out

    clock.run(Context(entry, [PREPARE, READ, {"do": "audit_graph", "case": 0, "call": 1}]))
    [(which, returned, changed, _)] = handed
    assert (which, changed) == ((0, 1), [])
    right = torch.equal(returned, torch.arange(8, dtype=torch.float32) * 3)
    assert right == honest
    assert honest or bool((returned.view(torch.uint8) == verify.PATTERN).all())


@pytest.mark.parametrize("honest", [True, False])
def test_a_call_in_place_is_audited_by_a_graph_of_one_launch(monkeypatch, handed, honest):
    """The timed graph would apply it to its own result, as often as it was captured."""
    device = PretendedCuda()
    device.install(monkeypatch)

    def double_(x, factor):
        device.launch(lambda: x.mul_(2), captured=honest)
        return x

    audits = [{"do": "audit", "case": 0, "call": 0}, {"do": "audit_graph", "case": 0, "call": 1}]
    clock.run(Context(double_, [PREPARE, READ, *audits]))
    [(_, plain, changed, _), (_, replayed, in_graph, _)] = handed
    assert torch.equal(plain, torch.arange(8, dtype=torch.float32) * 2)
    assert changed == [0]
    assert torch.equal(replayed, plain) is honest
    assert in_graph == ([0] if honest else [])


def test_a_candidate_that_raises_in_its_turn_is_at_fault(monkeypatch):
    def moody(x, factor):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(CandidateFault, match="illegal memory access") as fault:
        played(monkeypatch, moody, [PREPARE])
    assert (fault.value.outcome, fault.value.stage) == ("crash", "time")


def test_a_dropped_case_is_gone(monkeypatch):
    with pytest.raises(CandidateFault, match="KeyError"):
        played(monkeypatch, scale, [PREPARE, {"do": "drop", "case": 0, "cases": [0]}, READ])


def test_as_called_includes_the_wrapper(monkeypatch):
    (_, called), _, _ = played(monkeypatch, scale, [PREPARE, {"do": "called", "case": 0}])
    assert called["called_ms"] > 0
    assert math.isfinite(called["called_ms"])


# ------------------------------------------------------------ the reference's turns


def reference_played(monkeypatch, entry, orders, *, compiled, graphs=1):
    device = PretendedCuda()
    device.install(monkeypatch)
    asked = []

    def load(folder, *, compiled):
        asked.append((folder, compiled))
        return costly

    def costly(x, factor):
        device.spend(0.01)
        return entry(x, factor)

    monkeypatch.setattr(reference, "load", load)
    monkeypatch.setattr(reference, "graphs_compiled", lambda: graphs)
    context = Context(None, orders)
    context.problem_folder = Path("problem")
    context.parameters["compiled"] = compiled
    assert reference.run(context) == {"turns": len(orders)}
    assert asked == [(Path("problem"), compiled)]
    return context.results[1:]


@pytest.mark.parametrize("compiled", [True, False])
def test_the_references_turns_are_a_candidates_and_nobody_watches_them(monkeypatch, handed, compiled):
    monkeypatch.setattr(clock, "OnDevice", None)  # a hook on launches is what inductor's launchers refuse
    audit = {"do": "audit", "case": 0, "call": 2}
    prepared, read, called, audited = reference_played(
        monkeypatch, scale, [PREPARE, READ, {"do": "called", "case": 0}, audit], compiled=compiled
    )
    assert prepared["graph"] is True
    assert read["readings_ms"][0] == pytest.approx([0.01] * len(read["readings_ms"][0]))
    assert called["called_ms"] > 0
    assert audited == {"accepted": True}
    [(which, returned, changed, seen)] = handed
    assert which == (0, 2)
    assert torch.equal(returned, torch.arange(8, dtype=torch.float32) * 3)
    assert (changed, seen) == ([], Seen((), own=False))


def test_what_torch_compile_left_as_it_is_passes_for_nothing(monkeypatch):
    """It calls what it cannot trace as it is: eager times would stand under its name."""
    with pytest.raises(CandidateFault, match="found nothing in the reference that it can compile") as raised:
        reference_played(monkeypatch, scale, [PREPARE], compiled=True, graphs=0)
    assert (raised.value.outcome, raised.value.stage) == ("invalid", "compile")
    reference_played(monkeypatch, scale, [PREPARE], compiled=False, graphs=0)


def test_a_reference_that_raises_in_its_turn_says_why(monkeypatch):
    def broken(x, factor):
        raise ValueError("no such operator")

    with pytest.raises(CandidateFault, match="ValueError: no such operator") as raised:
        reference_played(monkeypatch, broken, [PREPARE], compiled=True)
    assert (raised.value.outcome, raised.value.stage) == ("crash", "time")
