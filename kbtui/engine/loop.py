"""The loop: ask the state what comes next, do it, until the run is over."""

from __future__ import annotations

import asyncio

from kbtui.engine import judging, plan, pulling
from kbtui.engine.commands import answer
from kbtui.engine.stopping import Stopped, StopSignal
from kbtui.engine.tools import Tools
from kbtui.errors import EnvironmentFailure, KbtuiError, ProviderFailure, UsageError
from kbtui.state import events as e
from kbtui.state.commands import AnyCommand

_COSTLY = (plan.Generate, plan.Time, plan.EndPull)
"""What a power cut must not undo. (A killed process loses no event anyway: each is handed to the kernel at once.)"""


class BaselineFailed(KbtuiError):
    """The problem's own kernel did not pass: there is nothing to compare with."""


class Loop:
    """One run from where its state stands to its end. `attended` as in `Engine`."""

    def __init__(self, tools: Tools, stop: StopSignal, *, attended: bool) -> None:
        self._tools, self._stop, self._attended = tools, stop, attended
        self._told = asyncio.Event()

    def handle(self, command: AnyCommand) -> tuple[bool, str]:
        """Do a person's command: whether it was accepted, and the sentence that says what it does or why not."""
        try:
            answered = answer(self._tools.state, self._tools.policy, command)
        except UsageError as refused:
            return False, str(refused)
        for event in answered.events:
            self._tools.emitter.emit(event)
        self._tools.emitter.settle()
        self._told.set()
        if answered.stop:
            self._stop.set()
        return True, answered.text

    async def run(self) -> str:
        """Work until the run is over and return what stopped it: "iterations", "budget", "no arms" or "user".

        Raises BaselineFailed, LaneLost, JournalError, and, unattended, EnvironmentFailure or ProviderFailure.
        """
        while True:
            self._told.clear()
            action = plan.next_action(self._tools.state)
            match action:
                case plan.Finish(stopped_by):
                    return stopped_by
                case plan.GiveUp(reason):
                    raise BaselineFailed(reason)
            try:
                done = await self._stop.unless(self._do(action))
            except Stopped:
                return "user"
            except (EnvironmentFailure, ProviderFailure) as failure:
                self._suspend(failure)
                continue
            if not done and not self._asks_for_arms():
                return "no arms"
            if isinstance(action, _COSTLY):
                self._tools.emitter.settle()

    async def _do(self, action: plan.Action) -> bool:
        """Do one action. False only when an arm was to be chosen and there is none."""
        tools = self._tools
        match action:
            case plan.WriteBaseline():
                pulling.write_baseline(tools)
            case plan.Compile(candidate):
                await judging.compile_candidate(tools, candidate)
            case plan.Verify(candidate):
                await judging.verify_candidate(tools, candidate)
            case plan.Time(candidate):
                await judging.time_candidate(tools, candidate)
            case plan.FindMoves(candidate):
                await judging.find_moves(tools, candidate)
            case plan.Promote(candidate):
                judging.promote(tools, candidate)
            case plan.TakeInjection(seq):
                pulling.take_injection(tools, seq)
            case plan.Choose(pull):
                return await pulling.choose(tools, pull)
            case plan.Generate(pull):
                await pulling.generate(tools, pull)
            case plan.EndPull(pull, candidate):
                pulling.end_pull(tools, pull, candidate)
            case plan.Wait():
                tools.show("idle", "paused")
                await self._told.wait()
        return True

    def _asks_for_arms(self) -> bool:
        """Hold the run when it is a person's bans or pin that leave no arm, and a person may lift them."""
        state = self._tools.state
        if not self._attended or not (state.bans or state.pinned is not None):
            return False
        reason = "no arm is left under the bans and the pin: lift one, then resume"
        self._tools.emitter.emit(e.RunPaused(by="kbtui", reason=reason))
        return True

    def _suspend(self, failure: EnvironmentFailure | ProviderFailure) -> None:
        """The pull in flight is nobody's fault and dropped; the run holds until a person says otherwise."""
        emitter = self._tools.emitter
        for pull in self._tools.state.open_pulls:
            emitter.emit(e.PullDropped(pull=pull.number, owner=failure.owner, reason=str(failure)))
        emitter.settle()
        if not self._attended:
            raise failure
        emitter.emit(e.RunPaused(by="kbtui", reason=str(failure), owner=failure.owner))
