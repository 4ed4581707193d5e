"""The errors kbtui raises on purpose: each carries one sentence for the user that names the thing and the remedy.

The command line prints that sentence and exits with the class's `exit_status`; anything else is a bug of ours.
"""

from __future__ import annotations

from typing import Literal

Owner = Literal["candidate", "environment", "provider"]


class KbtuiError(Exception):
    """Base of every expected failure. `str(error)` is one sentence fit for the user."""

    exit_status = 1


class OutputClosedError(Exception):
    """Whoever read our output went away (`kbtui runs | head -1`): nothing is left to say."""


class Crash(Exception):
    """A bug of ours (`__cause__`) that ended one part of the program while the rest goes on. `str` says what goes on.

    `facts` are lines for the crash report: what is known besides versions and traceback.
    """

    def __init__(self, goes_on: str, facts: list[str]) -> None:
        super().__init__(goes_on)
        self.facts = facts


class UsageError(KbtuiError):
    """The command line or the configuration asks for something that does not exist or does not fit together."""

    exit_status = 2


class ConfigError(UsageError):
    """A configuration file or variable is not understood; the sentence names the file and the key."""


class ProblemError(UsageError):
    """A problem folder lacks a piece or a piece is malformed; the sentence names file, piece and remedy."""


class UnknownPriceError(UsageError):
    """Nobody knows what a model costs, so that no cap can hold; the sentence names the ways out."""


class RunNotFoundError(UsageError):
    """No run has the given id."""


class EnvironmentFailure(KbtuiError):
    """The machine is at fault (driver, disk, another job, missing package): never the candidate's doing.

    The bandit does not see it; a run pauses or degrades and says so.
    """

    owner: Owner = "environment"


class ProviderFailure(KbtuiError):
    """A model's provider is at fault (429, timeout, bad key, cut reply); the bandit does not see it."""

    owner: Owner = "provider"


class ProtocolError(KbtuiError):
    """The two ends of a socket do not speak the same version, or one of them sent something malformed."""


class JournalError(KbtuiError):
    """A journal cannot be read or written; the sentence names the file and the line."""


class HistoryError(KbtuiError):
    """The history database is locked, missing or refuses a query; the sentence names the file and who holds it."""
