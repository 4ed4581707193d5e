"""Triton's interpreter, changed to count instead of compute.

Loads of floats give zeros, stores and matrix products do nothing, and every access, product and element-wise operation
goes to the current program's tally. Loads of integers are real where the address lies in an argument, since indices
decide what is touched next. Long loops run their first, second and last iterations, the second standing for all
between. Works on Triton 3.6 and 3.9; all changes are to the forked process that counts.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from kbtui.evaluate.inlane.tally import Program, Tile

_UNROLLED_ITERATIONS = 64
"""A `static_range` is unrolled by the compiler and may index tuples: it runs in full up to this length."""
_SPECIAL = ("exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "rsqrt", "precise_sqrt", "erf")

_CONSTANT = "kbtui.constant"
"""Attribute of a tile that holds one value everywhere."""


OPERATION = 16384
"""What any operation of the interpreter costs besides its elements, in elements: Python takes about 20 us for each."""
ACCESS = 4
"""Times that an element of an access weighs: its address is looked at."""


class TooMuchWork(Exception):
    """A case needs more work than it was allowed."""


class Stop(Exception):
    """A program has shown its first accesses, which is all that was wanted."""


class Meter:
    """Where the interpreter's counts go. `program` None: nothing is counted (the wrapper's own code runs).

    `spent` is the work done so far, in elements that the interpreter handled, and `allowed` its limit (0: any amount).
    It is counted and not timed, so that every machine counts the same, however busy it is.
    """

    def __init__(self) -> None:
        self.program: Program | None = None
        self.first_accesses_only = False
        self.spent = 0
        self.allowed = 0
        self.tensors: list[tuple[int, int]] = []
        """(first address, end) of each tensor argument."""

    def spend(self, elements: int) -> None:
        """Note one operation on so many elements. Raises TooMuchWork."""
        self.spent += OPERATION + elements
        if self.allowed and self.spent > self.allowed:
            raise TooMuchWork

    def tensor_at(self, address: int) -> int:
        for index, (first, end) in enumerate(self.tensors):
            if first <= address < end:
                return index
        return -1


def install() -> Meter:
    """Change the interpreter of this process; returns the meter that it reports to."""
    meter = Meter()
    interpreter.interpreter_builder.__class__ = _builder(meter)
    _count_reductions(meter)
    _shorten_loops(meter)
    return meter


def _zeros(like: Any, dtype: Any) -> Any:
    return interpreter.TensorHandle(np.zeros(np.shape(like), dtype=interpreter._get_np_dtype(dtype)), dtype)


def _is_float(handle: Any) -> bool:
    return bool(handle.dtype.scalar.is_floating())


def _builder(meter: Meter) -> type:
    class CountingBuilder(interpreter.InterpreterBuilder):  # type: ignore[misc]  # triton has no type stubs
        """Counts while `meter.program` is set; method names and arguments are the interpreter's."""

        def _access(self, pointers: Any, mask: Any, store: bool) -> tuple[Any, Any]:
            meter.spend(ACCESS * pointers.data.size)
            element = pointers.get_element_ty()
            item_bytes = max(1, element.primitive_bitwidth // 8)
            addresses = np.broadcast_to(pointers.data, np.broadcast_shapes(pointers.data.shape, mask.data.shape))
            active = addresses[np.broadcast_to(mask.data, addresses.shape).astype(bool)]
            if meter.program is not None and active.size:
                tensor = meter.tensor_at(int(active.ravel()[0]))
                meter.program.access(tensor, store, active, item_bytes)
            return element, item_bytes

        def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
            element, item_bytes = self._access(ptrs, mask, store=False)
            if not element.is_int() or element.primitive_bitwidth < 32:
                return _zeros(ptrs.data, element)
            inside = np.zeros(ptrs.data.shape, dtype=bool)
            for first, end in meter.tensors:
                inside |= (ptrs.data >= first) & (ptrs.data + np.uint64(item_bytes) <= end)
            readable = interpreter.TensorHandle(inside & mask.data, tl.int1)
            return super().create_masked_load(ptrs, readable, other, *rest, **named)

        def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> None:
            del value, rest, named
            self._access(ptrs, mask, store=True)

        def create_atomic_rmw(self, kind: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
            del kind, rest
            self._access(ptr, mask, store=True)
            return _zeros(val.data, val.dtype.scalar)

        def create_atomic_cas(self, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
            del val, rest
            self._access(ptr, interpreter.TensorHandle(np.ones_like(ptr.data, dtype=bool), tl.int1), store=True)
            # What was expected is there, so that a program that waits for a lock goes on.
            return interpreter.TensorHandle(cmp.data, cmp.dtype.scalar)

        def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, *rest: Any) -> Any:
            del rest
            meter.spend(d.data.size)
            if meter.program is not None:
                meter.program.product(_tile(a, b, str(input_precision)))
            return d

        def create_dot_scaled(self, *arguments: Any) -> Any:
            lhs, rhs, accumulator = arguments[0], arguments[3], arguments[-1]
            if meter.program is not None:
                rows, columns = accumulator.data.shape[-2:]
                depth = max(lhs.data.shape[-1], rhs.data.shape[-2])
                meter.program.product(Tile("fp8", rows, columns, depth, 1))
            return accumulator

        def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
            result = super().binary_op(lhs, rhs, op)
            meter.spend(result.data.size)
            if meter.program is not None and _is_float(lhs):
                count = meter.program.special_work if op is np.divide else meter.program.work
                count(result.data.size)
            return result

        def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
            result = super().ternary_op(lhs, rhs, other, op)
            meter.spend(result.data.size)
            if meter.program is not None and _is_float(other):
                meter.program.work(result.data.size)
            return result

        def create_fma(self, x: Any, y: Any, z: Any) -> Any:
            if meter.program is not None:
                meter.program.work(np.broadcast(x.data, y.data, z.data).size)
            return _zeros(np.broadcast(x.data, y.data, z.data), z.dtype.scalar)

        def cast_impl(self, src: Any, dst_type: Any) -> Any:
            target = dst_type.scalar
            meter.spend(src.data.size)
            if _is_float(src) and target.is_floating():
                if meter.program is not None and not src.attr.get(_CONSTANT):
                    meter.program.work(src.data.size)
                return _zeros(src.data, target)
            return super().cast_impl(src, dst_type)

        def create_splat(self, ret_ty: Any, arg: Any) -> Any:
            result = super().create_splat(ret_ty, arg)
            # The compiler converts a constant once; the interpreter converts a tile of it at every use.
            result.set_attr(_CONSTANT, True)
            return result

        def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
            del rounding_mode
            return self.cast_impl(src, dst_type)

        def create_assert(self, condition: Any, message: Any) -> None:
            """Values are not computed, so nothing said about them can be checked."""

        def create_assume(self, condition: Any) -> None:
            """See `create_assert`."""

        def create_print(self, *arguments: Any) -> None:
            """Printing is no traffic."""

    for name in _SPECIAL:
        setattr(CountingBuilder, f"create_{name}", _special(meter))
    return CountingBuilder


def _special(meter: Meter) -> Callable[[Any, Any], Any]:
    def count(builder: Any, argument: Any) -> Any:
        del builder
        meter.spend(argument.data.size)
        if meter.program is not None:
            meter.program.special_work(argument.data.size)
        return _zeros(argument.data, argument.dtype.scalar)

    return count


_DOT_TYPES = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32", "fp64": "fp64", "int8": "int8", "uint8": "int8"}


def _tile(a: Any, b: Any, precision: str) -> Tile:
    """The product of a (.., m, k) and b (.., k, n); batches count as more rows. fp32 operands run as TF32 unless ieee."""
    name = a.dtype.scalar.name
    dtype = "fp8" if name.startswith("fp8") else _DOT_TYPES.get(name, "fp32")
    if dtype == "fp32" and "IEEE" not in precision.upper():
        dtype = "tf32"
    rows, depth = a.data.shape[-2:]
    batch = int(np.prod(a.data.shape[:-2], dtype=np.int64))
    item_bytes = max(1, a.dtype.scalar.primitive_bitwidth // 8)
    return Tile(dtype, int(rows) * batch, int(b.data.shape[-1]), int(depth), item_bytes)


def _count_reductions(meter: Meter) -> None:
    """Reductions and scans report their size; those with a combine function of their own are not computed."""

    def generic_reduce(self: Any, inputs: Any) -> list[Any]:
        kept = []
        for argument in inputs:
            data = argument.handle.data
            axis = self.axis
            if axis is None:
                result = data.ravel()[:1].reshape((1,) * data.ndim) if self.keep_dims else data.ravel()[0]
            else:
                result = data.take([0], axis=axis) if self.keep_dims else data.take(0, axis=axis)
            kept.append(self.to_tensor(result, argument.dtype))
        return kept

    def generic_scan(self: Any, inputs: Any) -> list[Any]:
        del self
        return list(inputs)

    interpreter.ReduceOps.generic_reduce = generic_reduce
    interpreter.ScanOps.generic_scan = generic_scan
    for kind in (interpreter.ReduceOps, interpreter.ScanOps):
        kind.apply_impl = _counted(meter, kind.apply_impl)


def _counted(meter: Meter, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def apply(self: Any, inputs: Any) -> Any:
        elements = sum(argument.handle.data.size for argument in inputs)
        meter.spend(elements)
        if meter.program is not None:
            meter.program.reduce(elements)
        return original(self, inputs)

    return apply


def _shorten_loops(meter: Meter) -> None:
    """`range`, `tl.range` and `tl.static_range` of kernels become loops that the meter can shorten."""
    patch_core, patch_lang = interpreter._patch_lang_core, interpreter._patch_lang

    def bounds(start: Any, stop: Any = None, step: Any = None) -> range:
        first, last = (0, start) if stop is None else (start, stop)
        return range(operator.index(first), operator.index(last), 1 if step is None else operator.index(step))

    def dynamic(start: Any, stop: Any = None, step: Any = None, **_: Any) -> Any:
        if meter.program is None:
            return bounds(start, stop, step)
        return _shortened(meter, meter.program, bounds(start, stop, step), unrolled=1)

    def static(start: Any, stop: Any = None, step: Any = None, **_: Any) -> Any:
        if meter.program is None:
            return bounds(start, stop, step)
        return _shortened(meter, meter.program, bounds(start, stop, step), unrolled=_UNROLLED_ITERATIONS)

    def patched_core(lang: Any, scope: Any) -> None:
        patch_core(lang, scope)
        scope.set_attr(lang, "range", dynamic)
        scope.set_attr(lang, "static_range", static)

    def patched_lang(fn: Any) -> Any:
        if fn.__globals__.get("range", builtins.range) is builtins.range:
            fn.__globals__["range"] = dynamic
        return patch_lang(fn)

    interpreter._patch_lang_core = patched_core
    interpreter._patch_lang = patched_lang


def _shortened(meter: Meter, program: Program, iterations: range, unrolled: int) -> Iterator[int]:
    """Iterations of a kernel's loop: all when at most `unrolled`, else first, second (weighing for the middle) and last."""
    if len(iterations) <= unrolled:
        yield from iterations
        return
    outer = program.weight
    count = len(iterations)
    plan = [(iterations[0], 1), (iterations[1], count - 2 if count > 2 else 1)]
    if count > 2:
        plan.append((iterations[-1], 1))
    try:
        for turn, (value, times) in enumerate(plan):
            if turn and meter.first_accesses_only:
                raise Stop
            program.weight = outer * times
            program.consume()
            yield value
    finally:
        program.weight = outer
