"""What identifies a kernel's source between processes: the code that Python made of it, without file and lines."""

from __future__ import annotations

import hashlib
from types import CodeType

DIGITS = 16


def code_digest(code: CodeType) -> str:
    """Equal for equal source under one interpreter, wherever the file lies."""
    whole = hashlib.sha256()
    _feed(whole, code)
    return whole.hexdigest()[:DIGITS]


def kernel_id(name: str, code: CodeType) -> str:
    """Such as `softmax_kernel@0123456789abcdef`."""
    return f"{name[:200]}@{code_digest(code)}"


def _feed(whole: hashlib._Hash, code: CodeType) -> None:
    whole.update(repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _feed(whole, constant)
        else:
            whole.update(repr(constant).encode())
