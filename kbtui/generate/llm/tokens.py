"""How many tokens a text has: by a tokenizer that is on the disk, never by one from the network.

litellm ships the tables of OpenAI's tokenizers beside its code, and tiktoken reads them without litellm, whose import takes
seconds. Other models' tokenizers differ by some 20 %, so a count is a guess for the screen and for cutting prompts; where
money is at stake, `at_most` is used.
"""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tiktoken

BYTES_PER_TOKEN = 3.5
"""Of source code, for machines without a tokenizer."""
PER_MESSAGE = 16
"""Tokens that a chat template puts around one message, at most."""
_ENCODING = "cl100k_base"


def count(text: str) -> int:
    """About how many tokens `text` has."""
    encoding = _encoding()
    if encoding is None:
        return round(len(text.encode("utf-8", "replace")) / BYTES_PER_TOKEN)
    return len(encoding.encode(text, disallowed_special=()))


def exact() -> bool:
    """Whether `count` uses a tokenizer."""
    return _encoding() is not None


def at_most(*texts: str) -> int:
    """No tokenizer makes more tokens of these messages: none makes more than one of a byte."""
    return sum(len(text.encode("utf-8", "replace")) + PER_MESSAGE for text in texts)


@lru_cache(maxsize=1)
def _encoding() -> tiktoken.Encoding | None:
    litellm = find_spec("litellm")
    if litellm is None or find_spec("tiktoken") is None or not litellm.submodule_search_locations:
        return None
    tables = Path(next(iter(litellm.submodule_search_locations))) / "litellm_core_utils" / "tokenizers"
    if not (tables / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4").is_file():  # tiktoken's name for the table of cl100k
        return None
    import tiktoken

    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    os.environ["TIKTOKEN_CACHE_DIR"] = str(tables)
    try:
        return tiktoken.get_encoding(_ENCODING)
    finally:
        if before is None:
            del os.environ["TIKTOKEN_CACHE_DIR"]
        else:
            os.environ["TIKTOKEN_CACHE_DIR"] = before
