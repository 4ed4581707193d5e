"""The loop: ask the state what can be done, do it, until the run is over."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from kbtui.engine import actions as a
from kbtui.engine import judging, merging, plan, pulling
from kbtui.engine.actions import Action, candidate_of, pull_of
from kbtui.engine.commands import answer
from kbtui.engine.lane_thread import LaneLost
from kbtui.engine.placing import Limits
from kbtui.engine.stopping import Stopped, StopSignal
from kbtui.engine.tools import Tools
from kbtui.errors import EnvironmentFailure, KbtuiError, ProviderFailure, UsageError
from kbtui.state import events as e
from kbtui.state.commands import AnyCommand


class BaselineFailed(KbtuiError):
    """The problem's own kernel did not pass: there is nothing to compare with."""


class Loop:
    """One run from where its state stands to its end. `attended` as in `Engine`."""

    def __init__(self, tools: Tools, stop: StopSignal, limits: Limits, *, attended: bool) -> None:
        self._tools, self._stop, self._limits, self._attended = tools, stop, limits, attended
        self._told = asyncio.Event()
        self._running: dict[asyncio.Task[None], Action] = {}
        self._no_arm_at = -1
        """The last event when there was last no arm to choose: nothing else follows before another event."""
        self._paid_tokens = tools.state.tokens

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
        self._drop_moot()
        if answered.stop:
            self._stop.set()
        return True, answered.text

    async def run(self) -> str:
        """Work until the run is over and return what stopped it: "user", "no arms", or one of the reasons in `stops`.

        Raises BaselineFailed, LaneLost, JournalError, and, unattended, EnvironmentFailure or ProviderFailure.
        """
        try:
            return await self._stop.unless(self._work())
        except Stopped:
            return "user"

    async def _work(self) -> str:
        try:
            while True:
                self._told.clear()
                ready = plan.ready_actions(self._tools.state, self._limits, self._running.values())
                match ready:
                    case [a.Finish(stopped_by)]:
                        return stopped_by
                    case [a.GiveUp(reason)]:
                        raise BaselineFailed(reason)
                self._start(ready)
                if not self._running and self._no_arm and not self._asks_for_arms():
                    merge = plan.last_merge(self._tools.state)
                    if merge is None:
                        return "no arms"
                    self._start([a.Combine(merge)])
                await self._something()
        finally:
            await self._abandon(self._running)

    @property
    def _no_arm(self) -> bool:
        return self._no_arm_at == self._tools.state.seq

    def _start(self, ready: Iterable[Action]) -> None:
        for action in ready:
            if not (self._no_arm and isinstance(action, a.Choose)):
                self._running[asyncio.ensure_future(self._do(action))] = action

    async def _something(self) -> None:
        """Wait until an action is done or a person has said something, and see to what that means."""
        if not self._running:
            assert self._tools.state.status == "paused", "a run that is not paused has something to do"
            self._tools.show("idle", "paused")
        told = asyncio.ensure_future(self._told.wait())
        try:
            done, _ = await asyncio.wait((*self._running, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        # In the order in which they began, so that the run does not hang on that of a set.
        ended = [(task, self._running.pop(task)) for task in list(self._running) if task in done]
        try:
            for task, action in ended:
                await self._finished(action, task)
        finally:
            for task, _ in ended:
                if not task.cancelled():
                    task.exception()  # two that fail at once end the run by the first: asyncio would print the other

    async def _finished(self, action: Action, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        try:
            task.result()
        except (EnvironmentFailure, ProviderFailure, LaneLost) as failure:
            if isinstance(action, a.OnDevice) and await self._drop_device(action, failure):
                return
            if isinstance(failure, LaneLost):
                raise
            await self._suspend(action, failure)
            return
        # What a power cut must not undo: a pull, and a reply that was paid for. (A killed process loses no event anyway:
        # each is handed to the kernel at once.)
        if isinstance(action, a.EndPull) or self._tools.state.tokens > self._paid_tokens:
            self._paid_tokens = self._tools.state.tokens
            self._tools.emitter.settle()

    async def _do(self, action: Action) -> None:
        tools = self._tools
        match action:
            case a.WriteBaseline():
                pulling.write_baseline(tools)
            case a.Compile(candidate, device):
                await judging.compile_candidate(tools, candidate, device)
            case a.Prune(_, pruned):
                tools.emitter.emit(pruned)
            case a.Verify(candidate, device):
                await judging.verify_candidate(tools, candidate, device)
            case a.Time(candidate, device):
                await judging.time_candidate(tools, candidate, device)
            case a.TimeBaseline(candidate, device):
                await judging.time_baseline(tools, candidate, device)
            case a.ChooseBaseline(candidate):
                judging.choose_baseline(tools, candidate)
            case a.FindMoves(candidate):
                await judging.find_moves(tools, candidate)
            case a.Confirm(candidate, device):
                await judging.confirm_candidate(tools, candidate, device)
            case a.Promote(candidate):
                judging.promote(tools, candidate)
            case a.TakeInjection(seq):
                pulling.take_injection(tools, seq)
            case a.Combine(merge):
                await merging.combine(tools, merge)
            case a.Choose(pull):
                if not await pulling.choose(tools, pull):
                    self._no_arm_at = tools.state.seq
            case a.Generate(pull):
                await pulling.generate(tools, pull)
            case a.Repair(pull, candidate):
                await pulling.repair(tools, pull, candidate)
            case a.EndPull(pull, candidate):
                pulling.end_pull(tools, pull, candidate)

    def _asks_for_arms(self) -> bool:
        """Hold the run when it is a person's bans or pin that leave no arm, and a person may lift them."""
        state = self._tools.state
        if not self._attended or not (state.bans or state.pinned is not None):
            return False
        reason = "no arm is left under the bans and the pin: lift one, then resume"
        self._tools.emitter.emit(e.RunPaused(by="kbtui", reason=reason))
        return True

    async def _drop_device(self, action: a.OnDevice, failure: KbtuiError) -> bool:
        """Go on without the device that failed during the action, in a run on several: what it was doing is asked for again, and
        another does it. False when the run has no other left."""
        tools, device = self._tools, action.device
        if not device:
            return False
        if device not in tools.state.dropped:
            candidate = None if isinstance(action, a.TimeBaseline) else action.candidate.id
            tools.emitter.emit(e.DeviceDropped(device=device, reason=str(failure), candidate_id=candidate))
            tools.emitter.settle()
            beside = {task: each for task, each in self._running.items() if _is_on(device, each)}
            for task in beside:
                del self._running[task]
            await self._abandon(beside)
            tools.lanes.release(device)
        return bool(tools.state.live_lanes)

    async def _suspend(self, action: Action, failure: EnvironmentFailure | ProviderFailure) -> None:
        """The pull whose action failed is nobody's fault and dropped; the run holds until a person says otherwise.

        When the machine failed, the other pulls in flight stop where they are, and go on when the run does.
        """
        emitter, pull = self._tools.emitter, pull_of(action)
        if isinstance(failure, EnvironmentFailure):
            await self._abandon(self._running)
        if pull is not None and not self._tools.state.pulls[pull].ended:
            emitter.emit(e.PullDropped(pull=pull, owner=failure.owner, reason=str(failure)))
        emitter.settle()
        if not self._attended:
            raise failure
        state = self._tools.state
        if state.status != "paused" or state.pause_owner != failure.owner:
            emitter.emit(e.RunPaused(by="kbtui", reason=str(failure), owner=failure.owner))

    def _drop_moot(self) -> None:
        """Cancel, by a person's wish, what is written for a pull that has ended and what judges a candidate that was killed."""
        for task, action in self._running.items():
            pull, candidate = pull_of(action), candidate_of(action)
            if candidate is not None:
                moot = bool(candidate.killed_by)
            else:
                moot = pull is not None and self._tools.state.pulls[pull].ended
            if moot:
                task.cancel()

    async def _abandon(self, tasks: dict[asyncio.Task[None], Action]) -> None:
        """Leave actions undone: the state asks for them again."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tasks.clear()


def _is_on(device: str, action: Action) -> bool:
    return isinstance(action, a.OnDevice) and action.device == device
