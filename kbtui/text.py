"""Text that is not ours: made safe to show, and freed of secrets before it is kept.

Replies, source, compiler messages, paths and device names can hold escape sequences that reach the terminal raw
through any widget
and through plain printing (OSC 52 writes the user's clipboard). `clean` turns them into visible glyphs. `redact`
removes API keys.
"""

from __future__ import annotations

import functools
import os
import re

_C0 = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)}
_C1 = dict.fromkeys(range(128, 160), "�")
_BIDI = {
    code: f"<U+{code:04X}>"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029, 0xFEFF)
}
_SURROGATES = re.compile("[\ud800-\udfff]")
_TABLE: dict[int, int | str] = {**_C0, 0x7F: 0x2421, **_C1, **_BIDI}
_LINE_TABLE: dict[int, int | str] = {**_TABLE, 0x09: "    ", 0x0A: 0x240A}


def clean(text: str) -> str:
    """`text` with C0, C1, DEL and bidi controls as visible glyphs; newlines stay, tabs become four spaces.

    Length may change. The result holds nothing a terminal acts upon except newlines.
    """
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text.translate(_TABLE).replace("\t", "    "))


def clean_line(text: str, limit: int = 0) -> str:
    """`clean` for one line: newlines become a glyph too; cut to `limit` characters (0: not cut) with an ellipsis."""
    line = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text.translate(_LINE_TABLE))
    if limit and len(line) > limit:
        return line[: max(limit - 1, 0)] + "…"
    return line


_SECRET_NAME = re.compile(r"(API_?KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|AUTH)", re.IGNORECASE)
_SHAPES = re.compile(
    r"(?:sk-[A-Za-z0-9_\-]{16,}|AIza[A-Za-z0-9_\-]{30,}|gh[pousr]_[A-Za-z0-9]{20,}|hf_[A-Za-z0-9]{20,}"
    r"|(?<=Bearer )[A-Za-z0-9._\-]{16,})"
)
REDACTED = "[redacted]"


@functools.lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    """Whether an environment variable of that name is treated as a secret."""
    return _SECRET_NAME.search(name) is not None


def redact_growing(text: str) -> str:
    """`redact` for text that is still arriving: what may be the beginning of a secret at its end is left out, too."""
    text = redact(text)
    for name, value in os.environ.items():
        if len(value) < 8 or not is_secret_name(name):
            continue
        for length in range(min(len(value) - 1, len(text)), 4, -1):
            if text.endswith(value[:length]):
                text = text[:-length]
                break
    return text


def redact(text: str) -> str:
    """`text` without the values of secret environment variables (8 characters or more) and without what looks like a key."""
    for name in filter(_is_secret, os.environb):  # its names as bytes: to decode them takes longer than all else here
        if len(value := os.fsdecode(os.environb.get(name, b""))) >= 8 and value in text:
            text = text.replace(value, REDACTED)
    return _SHAPES.sub(REDACTED, text)


@functools.lru_cache(maxsize=1024)
def _is_secret(name: bytes) -> bool:
    return is_secret_name(os.fsdecode(name))


_EXPECTED = re.compile(
    r"^Expected `(?P<kind>[^`]+)`(?: (?P<bound>[<>]=? \S+))?(?:, got `(?P<got>[^`]+)`)? - at `\$\.(?P<key>[^`]+)`$"
)
_KINDS = {"float": "a number", "int": "a whole number", "str": "a text", "bool": "true or false"}


def in_words(message: str) -> str:
    """What msgspec says of a value that does not fit, as a person would: "c must be a number, not a text"."""
    found = _EXPECTED.match(message)
    if found is None:
        return message
    kind, bound, got = found["kind"], found["bound"], found["got"]
    wanted = " or ".join(_KINDS.get(one.strip(), one.strip()) for one in kind.split("|"))
    limit = f" {bound.removesuffix('.0')}" if bound else ""
    return f"{found['key']} must be {wanted}{limit}" + (f", not {_KINDS.get(got, got)}" if got else "")


def size_text(count: float) -> str:
    """A number of bytes for people: `940 B`, `67.2 MB`, `1.34 GB`, in powers of 1000 as bandwidths are."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} B"


def plural(count: int, noun: str) -> str:
    """`1 pull`, `2 pulls`, `2 queries`, `2 processes`, `1,204 rows`."""
    ending = "ies" if noun.endswith("y") else "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    many = f"{noun.removesuffix('y')}{ending}"
    return f"{count:,} {noun if count == 1 else many}"


def time_text(ms: float) -> str:
    """A duration in milliseconds for people, to three digits at most: `33.5 µs`, `132 µs`, `1.42 ms`, `2.5 s`."""
    if ms < 1.0:
        return f"{ms * 1e3:.1f} µs" if ms < 0.1 else f"{ms * 1e3:.0f} µs"
    if ms < 1000.0:
        return f"{ms:.3g} ms" if ms < 100 else f"{ms:.0f} ms"
    return f"{ms / 1e3:.1f} s"
