"""Signatures from what ncu prints and what GPM counts; every unknown has its reason."""

import stat
from types import SimpleNamespace

import pytest

from kbtui.evaluate import profiler as profiler_module
from kbtui.evaluate.profile import (
    CaseReading,
    Gpm,
    GpmUnavailable,
    combined,
    ncu_refusal,
    parse_ncu,
    run_ncu,
    unknown,
)
from kbtui.evaluate.profiler import Profiler
from kbtui.state.records import CaseTiming, Timing

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",'
    '"Section Name","Metric Name","Metric Unit","Metric Value"'
)


def row(launch, kernel, metric, value):
    place = '"(128, 1, 1)","(64, 1, 1)","0","9.0",""'
    return f'"{launch}","1","python","127.0.0.1","{kernel}","1","7",{place},"{metric}","%","{value}"'


SM, DRAM, L2 = (f"{unit}__throughput.avg.pct_of_peak_sustained_elapsed" for unit in ("sm", "dram", "lts"))
TIME = "gpu__time_duration.sum"
OUTPUT = "\n".join(
    [
        "==PROF== Connected to process 1",
        HEADER,
        row(0, "vectorized_elementwise_kernel", SM, "99.0"),
        row(0, "vectorized_elementwise_kernel", TIME, "1,000,000"),
        *(row(1, "k", metric, value) for metric, value in ((SM, "10"), (DRAM, "80"), (L2, "40"), (TIME, "1,000"))),
        *(row(2, "k", metric, value) for metric, value in ((SM, "30"), (DRAM, "20"), (L2, "n/a"), (TIME, "3,000"))),
        "==PROF== Disconnected from process 1",
    ]
)


def test_only_the_candidates_kernels_count_weighted_by_time():
    found = combined(parse_ncu(OUTPUT, frozenset({"k"})), "ncu", {})
    assert (found.sm.percent, found.dram.percent, found.l2.percent) == (25.0, 35.0, 40.0)
    assert {found.sm.source, found.dram.source, found.l2.source} == {"ncu"}


def test_a_resource_nobody_read_is_unknown_with_its_reason():
    found = combined([CaseReading(weight=1.0, sm=50.0, dram=None, l2=None)], "gpm", {"l2": "no counter"})
    assert (found.sm.percent, found.sm.source) == (50.0, "gpm")
    assert (found.l2.percent, found.l2.source, found.l2.reason) == (None, "unknown", "no counter")
    assert found.dram.reason == "not read"


@pytest.mark.parametrize(
    ("output", "piece"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "not permitted"),
        ("==WARNING== No kernels were profiled.", "no kernel"),
        ("==ERROR== The application returned an error code (11).", "error code (11)"),
        ("Traceback\nKeyError: 'x'\n\n", "its last words: KeyError: 'x'"),
        ("", "not done within 90 s"),
    ],
)
def test_why_ncu_read_nothing(output, piece):
    assert piece in ncu_refusal(output)


def test_unknown_names_the_reason_everywhere():
    found = unknown("no driver")
    assert [reading.reason for reading in (found.sm, found.dram, found.l2)] == ["no driver"] * 3


def test_ncu_gets_its_metrics_and_leaves_nothing_behind(tmp_path):
    tool = tmp_path / "ncu"
    tool.write_text('#!/bin/sh\necho "$@"\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    output = run_ncu(str(tool), ["python", "script.py"], {"PATH": "/bin:/usr/bin"}, tmp_path)
    assert output.strip().endswith("python script.py")
    assert all(metric in output for metric in (SM, DRAM, L2, TIME))
    assert "--profile-from-start off" in output


class FakeError(Exception):
    pass


class FakeNvml:
    """A device whose counters are given by metric number; counts what is open."""

    NVMLError = FakeError
    NVML_SUCCESS = 0
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_FP64_UTIL = 5, 11
    NVML_GPM_METRIC_FP32_UTIL, NVML_GPM_METRIC_FP16_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 12, 13, 10
    NVML_GPM_METRIC_INTEGER_UTIL = 14

    def __init__(self, values, supported=True):
        self.values, self.supported = values, supported
        self.open = 0
        self.samples = 0

    def nvmlInit(self):  # noqa: N802
        self.open += 1

    def nvmlShutdown(self):  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802
        return uuid

    def nvmlGpmQueryDeviceSupport(self, handle):  # noqa: N802
        return SimpleNamespace(isSupportedDevice=self.supported)

    def nvmlGpmSampleAlloc(self):  # noqa: N802
        self.samples += 1
        return SimpleNamespace(at=None)

    def nvmlGpmSampleFree(self, sample):  # noqa: N802
        self.samples -= 1

    def nvmlGpmSampleGet(self, handle, sample):  # noqa: N802
        sample.at = handle

    def c_nvmlGpmMetricsGet_t(self):  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, value=0.0, nvmlReturn=0) for _ in range(16)])

    def nvmlGpmMetricsGet(self, question):  # noqa: N802
        assert question.sample1.at
        assert question.sample2.at
        for metric in question.metrics[: question.numMetrics]:
            if metric.metricId in self.values:
                metric.value = self.values[metric.metricId]
            else:
                metric.nvmlReturn = 3


def test_gpm_takes_the_busiest_pipe_and_dram():
    nvml = FakeNvml({5: 12.0, 11: 0.0, 12: 30.5, 13: 2.0, 10: 82.8})
    waited = []
    reader = Gpm(nvml, "GPU-abc")
    assert reader.read(waited.append) == (30.5, 82.8)
    assert sum(waited) >= 0.02
    reader.close()
    assert (nvml.open, nvml.samples) == (0, 0)


def test_a_counter_that_does_not_answer_is_none():
    assert Gpm(FakeNvml({5: 12.0}), "GPU-abc").read(lambda _: None) == (12.0, None)


def test_what_is_no_number_is_none():
    assert Gpm(FakeNvml({5: 12.0, 10: float("nan")}), "GPU-abc").read(lambda _: None) == (12.0, None)


@pytest.mark.parametrize(
    ("pipe", "dram", "read"), [(0.0, 0.0, (None, None)), (0.0, 88.0, (0.0, 88.0)), (90.0, 0.0, (90.0, 0.0))]
)
def test_where_nothing_is_busy_nothing_is_known(pipe, dram, read):
    assert Gpm(FakeNvml({5: pipe, 10: dram}), "GPU-abc").read(lambda _: None) == read


def test_a_device_without_gpm_says_so_and_is_let_go():
    nvml = FakeNvml({}, supported=False)
    with pytest.raises(GpmUnavailable, match="no GPM counters"):
        Gpm(nvml, "GPU-abc")
    assert nvml.open == 0


class TestWhichProfiler:
    """ncu first for what matters, GPM first for the rest; whichever does not work here is passed over."""

    @pytest.fixture
    def profiler(self, tmp_path, monkeypatch):
        monkeypatch.setattr(profiler_module, "find_ncu", lambda: None)
        made = Profiler("python", tmp_path, None, "cuda:0", None, (), lambda source: tmp_path)
        made.asked = []
        return made

    def answer(self, profiler, monkeypatch, *, ncu, gpm):
        def by_ncu(source, kernels):
            profiler.asked.append("ncu")
            return ncu

        def by_gpm(uuid, open_alone, timing):
            profiler.asked.append("gpm")
            if isinstance(gpm, Exception):
                raise gpm
            return gpm

        monkeypatch.setattr(profiler, "_by_ncu", by_ncu)
        monkeypatch.setattr(profiler, "_by_gpm", by_gpm)

    @pytest.mark.parametrize(
        ("way", "ncu", "gpm", "asked", "expected"),
        [
            ("profile", "N", "G", ["ncu"], "N"),
            ("profile", None, "G", ["ncu", "gpm"], "G"),
            ("sample", "N", "G", ["gpm"], "G"),
            ("sample", "N", GpmUnavailable("too old"), ["gpm", "ncu"], "N"),
        ],
    )
    def test_order(self, profiler, monkeypatch, way, ncu, gpm, asked, expected):
        self.answer(profiler, monkeypatch, ncu=ncu, gpm=gpm)
        timing = Timing(kind="measured", verdict="same", cases=(CaseTiming(case="a", ms=1.0),))
        assert getattr(profiler, way)("GPU-1", None, "", (), timing) == expected
        assert profiler.asked == asked

    @pytest.mark.parametrize(("verdict", "asked"), [("same", ["gpm"]), ("faster", ["gpm", "ncu"])])
    def test_of_a_gain_what_gpm_leaves_out_is_read_by_ncu(self, profiler, monkeypatch, verdict, asked):
        sampled = combined([CaseReading(weight=1.0, sm=20.0, dram=None, l2=None)], "gpm", {"dram": "no value"})
        self.answer(profiler, monkeypatch, ncu="N", gpm=sampled)
        timing = Timing(kind="measured", verdict=verdict, cases=(CaseTiming(case="a", ms=1.0),))
        found = profiler.sample("GPU-1", None, "", (), timing)
        assert found == ("N" if verdict == "faster" else sampled)
        assert profiler.asked == asked

    def test_where_neither_works_both_reasons_are_given(self, profiler, monkeypatch):
        self.answer(profiler, monkeypatch, ncu=None, gpm=GpmUnavailable("too old"))
        timing = Timing(kind="measured", verdict="same", cases=(CaseTiming(case="a", ms=1.0),))
        found = profiler.sample("GPU-1", None, "", (), timing)
        assert found.sm.percent is None
        assert found.sm.reason == "ncu is not installed; too old"

    @pytest.mark.parametrize("way", ["profile", "sample"])
    def test_what_was_not_timed_is_not_profiled(self, profiler, monkeypatch, way):
        self.answer(profiler, monkeypatch, ncu="N", gpm="G")
        timing = Timing(kind="measured", verdict="unknown", cases=(CaseTiming(case="a", failed="cancelled"),))
        assert getattr(profiler, way)("GPU-1", None, "", (), timing).dram.source == "unknown"
        assert profiler.asked == []
