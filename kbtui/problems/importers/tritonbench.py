"""TritonBench-G: a folder of files with a kernel, a line of 146 `#`, and code that calls it; timing scripts beside it.

Everything is told from the syntax: which function or class the suite calls, and with which parameters.
"""

from __future__ import annotations

import ast
import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from kbtui.errors import KbtuiError, ProblemError, UsageError
from kbtui.problems.checks import parse
from kbtui.problems.folder import read_folder
from kbtui.problems.importers.comparisons import what_is_compared
from kbtui.problems.importers.folders import GENERATED, Imported, chosen, digest, write_folder
from kbtui.problems.importing import KERNEL, PROBLEM
from kbtui.problems.names import bindings, is_a_kernel

SUITE = "tritonbench"
LINE = "#" * 146
CALLS, TIMED = "calls.py", "timed.py"
_KERNELS = ("TritonBench_G_v1", "TritonBench_G")
_SCRIPTS = ("golden_metrics", "perf_G")
_DOT_EXACT = {"ieee"}
_RANDOM = {"rand", "randn", "randint", "randperm", "normal"}


@dataclass(frozen=True)
class Entry:
    """What the suite calls. `adapter` is source to append to the kernel where that is a class."""

    name: str
    recorded: str
    parameters: tuple[str, ...]
    adapter: str = ""


def import_suite(where: Path, out: Path, kernels: tuple[str, ...] = ()) -> list[Imported]:
    """Import every file of the suite below `where`, or those called `kernels`. Raises UsageError when there is none."""
    if not where.is_dir():
        raise UsageError(f"{where} is no folder: give the folder of the suite, or one above it")
    folder = _find(where, _KERNELS) or where
    files = [file for file in sorted(folder.glob("*.py")) if LINE in file.read_text("utf-8", "replace")]
    scripts = _find(where, _SCRIPTS) or _find(folder.parent.parent, _SCRIPTS)
    return [_import(file, scripts, out) for file in chosen(files, kernels, where)]


def _find(where: Path, names: tuple[str, ...]) -> Path | None:
    """The first folder of that name at or below `where`, that has Python files."""
    if where.name in names and any(where.glob("*.py")):
        return where
    found = (path for name in names for path in sorted(where.rglob(name)) if path.is_dir() and any(path.glob("*.py")))
    return next(found, None)


def _import(file: Path, scripts: Path | None, out: Path) -> Imported:
    name = file.stem
    try:
        return _imported(file, scripts, out / name)
    except (KbtuiError, UnicodeDecodeError) as error:
        return Imported(name, reason=str(error).replace(f"{file}", file.name))


def _imported(file: Path, scripts: Path | None, folder: Path) -> Imported:
    name = file.stem
    implementation, _, calls = file.read_text(encoding="utf-8").partition(LINE)
    implementation = implementation.rstrip() + "\n"
    tree = parse(file, implementation)
    calls_tree = parse(file, calls)
    script = scripts / f"{name}_perf.py" if scripts is not None else None
    timed = script.read_text(encoding="utf-8") if script is not None and script.is_file() else ""
    timed_tree = parse(Path(f"{name}_perf.py"), timed)
    entry = _entry(name, tree, calls_tree, timed_tree)
    beside = {CALLS: calls.lstrip("\n")}
    if timed:
        beside[TIMED] = timed
    files = {
        KERNEL: _missing_imports(tree, calls_tree) + implementation + entry.adapter,
        **beside,
        PROBLEM: _problem(name, entry, beside, tree),
    }
    write_folder(folder, files)
    read_folder(folder)
    notes = [] if timed else ["no timing script: its test inputs are timed"]
    compared = what_is_compared(calls_tree)
    if compared != "values":
        notes.append(f"its own test compares {compared}: values are checked instead")
    if drawing := _draws(entry.recorded, tree):
        notes.append(f"it calls {drawing} itself: what hangs on that has no right output")
    return Imported(name, folder, notes=tuple(notes))


# what is called


def _entry(name: str, tree: ast.Module, calls: ast.Module, timed: ast.Module) -> Entry:
    defined = _defined(tree)
    called = _called_when_timed(timed, defined) or _called(calls, defined)
    usable = [one for one in called if not is_a_kernel(defined[one], tree)]
    if not usable:
        kernels = [one for one in called if is_a_kernel(defined[one], tree)]
        if kernels:
            raise ProblemError(f"its code launches the kernel {kernels[0]} itself: no Python function to call is there")
        raise ProblemError("its code calls nothing that its kernel part defines")
    troubles = []
    for one in usable:
        try:
            return _described(name, one, defined)
        except ProblemError as error:
            troubles.append(error)
    raise troubles[0]


def _defined(tree: ast.Module) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            found.update({target.id: statement for target in statement.targets if isinstance(target, ast.Name)})
    return found


def _called_when_timed(timed: ast.Module, defined: dict[str, ast.stmt]) -> list[str]:
    methods = [one for one in ast.walk(timed) if isinstance(one, ast.FunctionDef) and one.name == "call_op"]
    return _called(methods[-1], defined) if methods else []


def _called(tree: ast.AST, defined: dict[str, ast.stmt]) -> list[str]:
    """Names of `defined` that are called in a tree, by themselves, through `apply` or with a grid, in the order of the lines."""
    found: dict[str, tuple[int, int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            base = node.func
            while isinstance(base, ast.Attribute | ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name) and base.id in defined:
                found.setdefault(base.id, (node.lineno, node.col_offset))
    return sorted(found, key=lambda one: found[one])


def _described(name: str, called: str, defined: dict[str, ast.stmt]) -> Entry:
    statement = defined[called]
    if isinstance(statement, ast.FunctionDef):
        return _function(name, statement, defined)
    if isinstance(statement, ast.ClassDef):
        arguments = _without_first(_forward(statement).args)
        given = ", ".join(one.arg for one in arguments.args)
        own, adapter = _adapter(name, defined, arguments, f"{called}.apply({given})")
        return Entry(own, called, _parameters(arguments), adapter)
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Attribute):
        wrapped = statement.value.value
        if statement.value.attr == "apply" and isinstance(wrapped, ast.Name) and wrapped.id in defined:
            inner = defined[wrapped.id]
            if isinstance(inner, ast.ClassDef):
                forward = _forward(inner)
                return Entry(called, called, _parameters(forward.args)[1:])
    raise ProblemError(
        f"its code calls {called}, which line {statement.lineno} makes in a way that syntax does not tell"
    )


def _function(name: str, made: ast.FunctionDef, defined: dict[str, ast.stmt]) -> Entry:
    """A function as it is; one with arguments that can only be given by name gets a wrapper, since lanes give none by name."""
    if not made.args.kwonlyargs:
        return Entry(made.name, made.name, _parameters(made.args))
    plain = [ast.arg(arg=one.arg) for one in (*made.args.posonlyargs, *made.args.args, *made.args.kwonlyargs)]
    arguments = ast.arguments(posonlyargs=[], args=plain, kwonlyargs=[], kw_defaults=[], defaults=[])
    given = [one.arg for one in (*made.args.posonlyargs, *made.args.args)]
    given += [f"{one.arg}={one.arg}" for one in made.args.kwonlyargs]
    own, adapter = _adapter(name, defined, arguments, f"{made.name}({', '.join(given)})")
    return Entry(own, made.name, _parameters(arguments), adapter)


def _adapter(name: str, defined: dict[str, ast.stmt], arguments: ast.arguments, call: str) -> tuple[str, str]:
    own = _free_name(name, defined)
    return own, f"\n\ndef {own}({ast.unparse(arguments)}):\n    return {call}\n"


def _forward(made: ast.ClassDef) -> ast.FunctionDef:
    """The `forward` of an autograd function. Raises ProblemError for any other class."""
    bases = {base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in made.bases}
    forward = next((one for one in made.body if isinstance(one, ast.FunctionDef) and one.name == "forward"), None)
    if "Function" not in bases or forward is None:
        raise ProblemError(
            f"its code calls {made.name}, a class that is no autograd function: it has a state of its own"
        )
    return forward


def _parameters(arguments: ast.arguments) -> tuple[str, ...]:
    return tuple(one.arg for one in (*arguments.posonlyargs, *arguments.args))


def _without_first(arguments: ast.arguments) -> ast.arguments:
    kept = [ast.arg(arg=one.arg) for one in arguments.args[1:]]
    return ast.arguments(posonlyargs=[], args=kept, kwonlyargs=[], kw_defaults=[], defaults=arguments.defaults)


def _free_name(name: str, defined: dict[str, ast.stmt]) -> str:
    own = re.sub(r"\W", "_", name)
    own = own if own.isidentifier() and not keyword.iskeyword(own) else f"op_{own}"
    return own if own not in defined else f"{own}_entry"


# what is written


def _missing_imports(tree: ast.Module, calls: ast.Module) -> str:
    """Imports that the kernel part uses and only the test code makes: run as one file they are there for both."""
    bound = {name for name, _ in bindings(tree.body)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    wanted = [
        statement
        for statement in calls.body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        and any(name in used - bound for name, _ in bindings([statement]))
    ]
    return "".join(f"{ast.unparse(one)}\n" for one in wanted)


def _problem(name: str, entry: Entry, beside: dict[str, str], tree: ast.Module) -> str:
    files = "".join(f'        "{file}": "{digest(text)}",\n' for file, text in beside.items())
    # a tensor core rounds fp32 factors to TF32 unless the kernel forbids it, and then both sides may
    precision = 'precision = "tf32"\n' if _rounds_products(tree) else ""
    return f'''"""{name} of TritonBench-G; its own kernel is the reference."""
{GENERATED}

from kbtui.problems.suites.triton_file import TritonFile

entry = "{entry.name}"
suite = TritonFile(
    __file__,
    entry=entry,
    recorded="{entry.recorded}",
    parameters={entry.parameters!r},
    files={{
{files}    }},
)
own_precision = True
{precision}cases = suite.cases
checks = suite.checks
notes = suite.notes
make_inputs = suite.make_inputs
reference = suite.reference
'''


def _draws(recorded: str, tree: ast.Module) -> str:
    """The first function of torch's that draws random values in what the suite calls, "" when there is none."""
    called = next((one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == recorded), None)
    for node in ast.walk(called) if called is not None else ():
        match node:
            case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in _RANDOM:
                return f"torch.{name}"
    return ""


def _rounds_products(tree: ast.Module) -> bool:
    """Whether a `tl.dot` may round float32 factors to TF32: it does unless told otherwise."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dot":
            said = {one.arg: one.value for one in node.keywords}
            precise, allowed = said.get("input_precision"), said.get("allow_tf32")
            exact = isinstance(precise, ast.Constant) and precise.value in _DOT_EXACT
            exact = exact or (isinstance(allowed, ast.Constant) and allowed.value is False)
            if not exact:
                return True
    return False
