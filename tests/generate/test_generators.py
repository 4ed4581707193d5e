"""The generators: drawing, repeating, running out; replay; inject; names."""

from __future__ import annotations

import ast
import json
import sys
import textwrap
from pathlib import Path

import libcst as cst
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kbtui.errors import UsageError
from kbtui.generate.digest import source_digest, syntax_digest
from kbtui.generate.generator import Exhausted, Request, Written
from kbtui.generate.inject import injected
from kbtui.generate.moves.registry import all_moves
from kbtui.generate.registry import GENERATORS, make_generator
from kbtui.generate.replay import ReplayGenerator
from kbtui.generate.rewrite import RewriteGenerator
from kbtui.generate.tree.module import KernelModule
from kbtui.state.records import STRATEGIES, CaseInfo, DeviceInfo, ProblemInfo
from kbtui.state.run_state import Candidate


def request(source, entry, strategy, *, seed=(0, 1, 3), seen=(), tried=()):
    return Request(
        problem=ProblemInfo(
            name="p", path="/p", entry=entry, digest="0", cases=(CaseInfo(name="n=1", fields={"n": 1}),)
        ),
        device=DeviceInfo(lane="cpu", kind="cpu", name="interpreter", target="sm_90"),
        parent=Candidate(
            id=3,
            parent_id=None,
            pull=0,
            strategy=None,
            generator="x",
            move="",
            source=source,
            source_digest=source_digest(source),
            syntax_digest=syntax_digest(source),
        ),
        strategy=strategy,
        pull=1,
        seed=seed,
        seen=frozenset(seen),
        tried=frozenset(tried),
    )


async def test_same_seed_same_version_and_seeds_differ(read):
    source = read("matmul").source
    written = [
        await RewriteGenerator().write(request(source, "matmul", "tiling", seed=(0, pull, 3))) for pull in range(12)
    ]
    again = [
        await RewriteGenerator().write(request(source, "matmul", "tiling", seed=(0, pull, 3))) for pull in range(12)
    ]
    assert written == again
    assert len({w.move for w in written}) > 2


async def test_everything_is_drawn_once_and_then_it_is_exhausted(read):
    source, generator = read("softmax").source, RewriteGenerator()
    tried, seen = set(), {syntax_digest(source)}
    offered = generator.moves(source, "softmax")["access_layout"]
    for _ in range(offered):
        written = await generator.write(request(source, "softmax", "access_layout", seen=seen, tried=tried))
        assert isinstance(written, Written)
        assert written.move not in tried
        assert written.tokens == 0
        assert written.cost_usd == 0
        assert syntax_digest(written.source) not in seen
        tried.add(written.move)
        seen.add(syntax_digest(written.source))
    last = await generator.write(request(source, "softmax", "access_layout", seen=seen, tried=tried))
    assert isinstance(last, Exhausted)
    assert "#3" in last.reason


async def test_seen_alone_and_tried_alone_exclude(read):
    module, generator = read("vector_add"), RewriteGenerator()
    source = module.source
    (only,) = generator.options(module, "vectorization")
    new = only.move.apply(module, only.site)
    for excluded in ({"seen": [syntax_digest(new)]}, {"tried": [only.title]}):
        answer = await generator.write(request(source, "vector_add", "vectorization", **excluded))
        assert isinstance(answer, Exhausted)
        assert answer.reason == "the only vectorization move of #3 was made or leads to a known version"


def test_a_site_of_another_module_is_refused(read):
    (option,) = RewriteGenerator().options(read("vector_add"), "vectorization")
    with pytest.raises(ValueError, match="another tree"):
        option.move.apply(read("vector_add"), option.site)


async def test_a_strategy_without_a_move_says_so(read):
    answer = await RewriteGenerator().write(request(read("softmax").source, "softmax", "fusion"))
    assert answer == Exhausted("fusion has no move for #3")
    assert "fusion" not in RewriteGenerator().moves(read("softmax").source, "softmax")


async def test_source_that_does_not_parse_has_no_move():
    assert RewriteGenerator().moves("def f(:", "f") == {}
    answer = await RewriteGenerator().write(request("def f(:", "f", "tiling"))
    assert isinstance(answer, Exhausted)
    assert "does not parse" in answer.reason


def test_counts_are_the_options(read):
    module, generator = read("attention"), RewriteGenerator()
    counts = generator.moves(module.source, "attention")
    assert counts == {s: n for s in STRATEGIES if (n := len(generator.options(module, s)))}


@pytest.mark.parametrize("style", ["autotuned", "looped_row", "matmul", "cross_entropy", "attention"])
def test_titles_are_unique_and_results_differ(read, style):
    module, generator = read(style), RewriteGenerator()
    for strategy in STRATEGIES:
        options = generator.options(module, strategy)
        assert len({o.title for o in options}) == len(options)
        for option in options:
            new = option.move.apply(module, option.site)
            assert syntax_digest(new) != syntax_digest(module.source)


def test_moves_have_names_of_their_own_and_known_strategies():
    moves = all_moves()
    assert len({move.name for move in moves}) == len(moves)
    assert {move.strategy for move in moves} <= set(STRATEGIES)
    assert all(move.summary for move in moves)


@pytest.mark.parametrize("style", ["vector_add", "softmax", "rms_norm", "matmul"])
async def test_chains_of_moves_stay_readable(read, style):
    generator, source, seen = RewriteGenerator(), read(style).source, set()
    for pull in range(1, 25):
        seen.add(syntax_digest(source))
        offered = sorted(generator.moves(source, style))
        strategy = offered[pull % len(offered)]
        written = await generator.write(request(source, style, strategy, seed=(7, pull, 3), seen=seen))
        if isinstance(written, Written):
            ast.parse(written.source)
            assert f"def {style}(" in written.source
            source = written.source


# ------------------------------------------------------------ foreign files

STANDARD_LIBRARY = ["dataclasses", "argparse", "typing", "inspect", "asyncio.tasks", "ast"]


@pytest.mark.parametrize("name", STANDARD_LIBRARY)
def test_files_without_kernels_offer_nothing(name):
    __import__(name)
    path = sys.modules[name].__file__
    with open(path, encoding="utf-8") as file:
        source = file.read()
    entry = next(n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef))
    assert RewriteGenerator().moves(source, entry) == {}
    assert KernelModule(source, entry).rewritten({}) == source


EXPRESSIONS = st.sampled_from(
    ["BLOCK", "1024", "pid", "n", "tl.arange(0, BLOCK)", "tl.program_id(0)", "tl.program_id(axis=1)", "*rest", "x[0]",
     "lambda: 0", "min(BLOCK, 64)", "triton.cdiv(n, BLOCK)", "offs", "(yield_)", "tl.load(x + offs)", "not n",
     "tl.swizzle2d(0, 1, 2, 3, 4)"]
)  # fmt: skip
STATEMENTS = st.sampled_from(
    [
        "pid = {0}", "offs = {0} * {1} + {2}", "offs += {0}", "tl.store(x + {0}, {1}, mask={2})", "pid, offs = {0}, {1}",
        "for i in range({0}, {1}):\n        offs = {2}", "for i in tl.range({0}, num_stages={1}):\n        tl.load({2})",
        "while {0}:\n        pid = {1}", "if {0} < {1}:\n        return", "tl.load({0}, {1}, cache_modifier={2})", "pass",
        "x = tl.dot({0}, {1}, {2})", "kernel({0}, {1}, {2})", "pid: tl.int32 = {0}", "(pid := {0})", "a = b = {0} % {1}",
    ]
)  # fmt: skip
LAUNCHES = st.sampled_from(
    [
        "kernel[{0}](x, n, {1})", "kernel[({0}, {1})](x, n, BLOCK={2})",
        "kernel[lambda m: ({0}, {1})](x, BLOCK=64, num_warps={2})",
        "kernel[{0}, {1}](**{2})", "BLOCK = {0}", "n = {0} // {1}", "grid = ({0}, {1})", "kernel[grid](x, n, BLOCK)",
        "kernel[grid](*{0}, num_stages={1})", "kernel()", "kernel[grid]", "kernel[1:2](x)", "x = x.contiguous()",
    ]
)  # fmt: skip
FILLED = st.tuples(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    body=st.lists(st.tuples(STATEMENTS, FILLED), min_size=1, max_size=6),
    wrapper=st.lists(st.tuples(LAUNCHES, FILLED), min_size=1, max_size=5),
    default=st.sampled_from(["", " = 64", " = (1, 2)"]),
)
def test_moves_never_fail_on_what_parses(body, wrapper, default):
    kernel = "\n    ".join(statement.format(*filled) for statement, filled in body)
    launches = "\n    ".join(statement.format(*filled) for statement, filled in wrapper)
    source = (
        "import triton\nimport triton.language as tl\n\n@triton.jit\n"
        f"def kernel(x, n, BLOCK: tl.constexpr{default}):\n    {kernel}\n\ndef run(x, n=5):\n    {launches}\n"
    )
    try:
        ast.parse(source)
        module = KernelModule(source, "run")
    except (SyntaxError, cst.ParserSyntaxError):
        return
    for move in all_moves():
        for site in move.sites(module):
            ast.parse(move.apply(module, site))


# ------------------------------------------------------------ replay, inject, names


def recording(tmp_path, *replies):
    path = tmp_path / "replies.jsonl"
    path.write_text("\n".join(json.dumps(reply) for reply in replies) + "\n")
    return path


async def test_replay_gives_what_fits_in_order_and_nothing_twice(tmp_path):
    generator = make_generator(
        "replay",
        recording=recording(
            tmp_path,
            {"strategy": "tiling", "source": "a = 1\n", "move": "first", "detail": "d"},
            {"source": "a = 2\n", "move": "any"},
            {"strategy": "tiling", "source": "a = 3\n", "move": "third", "parent": syntax_digest("b = 1\n")},
        ),
    )
    assert generator.moves("b = 0\n", "f") == {**dict.fromkeys(STRATEGIES, 1), "tiling": 2}
    assert generator.moves("b = 1\n", "f")["tiling"] == 3
    first = await generator.write(request("b = 0\n", "f", "tiling"))
    assert first == Written(source="a = 1\n", move="first", detail="d")
    second = await generator.write(request("b = 0\n", "f", "tiling", seen=[syntax_digest("a  =  1")]))
    assert second.move == "any"
    fusion = await generator.write(request("b = 0\n", "f", "fusion"))
    assert fusion.move == "any"
    third = await generator.write(request("b = 1\n", "f", "tiling", tried=["first", "any"]))
    assert third.move == "third"
    done = await generator.write(request("b = 0\n", "f", "tiling", tried=["first", "any"]))
    assert isinstance(done, Exhausted)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('{"source": "a", "move": "m"}\n{"source": 1, "move": "m"}\n', "line 2"),
        ('{"source": "a"}\n', "line 1"),
        ('{"source": "a", "move": "m", "strategy": "magic"}\n', "magic"),
        ('{"source": "a", "move": "m", "extra": 1}\n', "extra"),
        ("not json\n", "line 1"),
        ("\n", "holds no reply"),
    ],
)
def test_a_malformed_recording_is_named(tmp_path, content, part):
    path = tmp_path / "replies.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match=part) as raised:
        ReplayGenerator.from_file(path)
    assert str(path) in str(raised.value)


def test_a_missing_recording_is_named(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        ReplayGenerator.from_file(tmp_path / "none.jsonl")


def test_inject_takes_what_parses_and_has_the_entry():
    source = textwrap.dedent("""
        import torch
        if torch:
            def softmax(x):
                return x
    """)
    assert injected(source, "softmax", "mine.py") == Written(
        source=source, move="mine.py", detail="written by a person"
    )
    assert injected("from a import b as softmax\n", "softmax", "m.py").move == "m.py"
    assert injected("softmax = lambda x: x\n", "softmax", "m.py").move == "m.py"


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("", "is empty"),
        ("def softmax(x:\n", "line 1"),
        ("def other(x):\n    def softmax(x): pass\n", "does not define softmax"),
        ("a = '\0'\n", "mine.py"),
        ("softmax = 1\n" + "#" * (1 << 20), "at most"),
    ],
)
def test_inject_refuses_with_a_sentence(source, part):
    with pytest.raises(UsageError, match=part) as raised:
        injected(source, "softmax", "mine.py")
    assert "\n" not in str(raised.value)


def test_generators_by_name(tmp_path):
    assert make_generator("rewrite").name == "rewrite"
    path = recording(tmp_path, {"source": "a", "move": "m"})
    assert make_generator("replay", recording=path).name == "replay"
    with pytest.raises(UsageError, match="choose one of rewrite, llm, replay"):
        make_generator("magic")
    with pytest.raises(UsageError, match="needs a recording"):
        make_generator("replay")
    assert make_generator("llm", model="some/model").name == "llm"
    with pytest.raises(UsageError, match="needs a model"):
        make_generator("llm")
    assert set(GENERATORS) == {"rewrite", "llm", "replay"}


def test_every_move_is_documented_under_its_strategy():
    text = (Path(__file__).parents[2] / "docs" / "moves.md").read_text()
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    for move in all_moves():
        assert f"`{move.name}`" in rows[move.strategy]
        assert text.count(f"`{move.name}`") >= 2


def test_nothing_is_documented_that_is_no_move():
    text = (Path(__file__).parents[2] / "docs" / "moves.md").read_text()
    names = {move.name for move in all_moves()}
    section = text[text.index("## What each does") : text.index("## What they yield")]
    documented = [
        name.strip(" `")
        for line in section.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].split(",")
    ]
    assert sorted(documented) == sorted(names)
