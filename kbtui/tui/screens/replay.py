"""The replay of a recorded run: the cockpit as it was after any event, with a slider and a way to play it."""

from __future__ import annotations

from typing import ClassVar

from kbtui.tui.actions import bindings_of
from kbtui.tui.line import Line
from kbtui.tui.replaying import ReplaySession
from kbtui.tui.screens.cockpit import CockpitScreen
from kbtui.tui.session import Session
from kbtui.tui.views import replay as view
from kbtui.tui.widgets.strips import Footer


class ReplayScreen(CockpitScreen):
    """The cockpit's panes over a `ReplaySession`. What would steer a run is refused with a sentence."""

    PLACES: ClassVar[tuple[str, ...]] = ("replay", "cockpit", "any")
    FOOTER: ClassVar[tuple[str, ...]] = ("replay", "any")
    NEWCOMER = (("play", "plays the run"), ("pull_on", "goes a pull on"), ("help", "lists every key"))
    NEWCOMER_ENDED = NEWCOMER
    BINDINGS = bindings_of("replay")

    @property
    def replay(self) -> ReplaySession:
        """The session, by its own type."""
        session = self.kbtui.session
        assert isinstance(session, ReplaySession)
        return session

    def header_lines(self, session: Session, width: int) -> list[Line]:
        assert isinstance(session, ReplaySession)
        return view.header(session, width)

    def paint_panes(self) -> None:
        super().paint_panes()
        if isinstance(self.kbtui.session, ReplaySession):
            self.query_one("#footer", Footer).relabel(play="hold" if self.replay.playing else "play")

    # ------------------------------------------------------------ actions

    def _go(self, place: int) -> None:
        self.replay.go(place)
        self.paint()

    @property
    def _at(self) -> int:
        timeline = self.replay.timeline
        return timeline.at if timeline is not None else 0

    async def do_replay(self) -> None:
        self.kbtui.refuse("this is the replay: space plays it, and [ and ] go through it pull by pull")

    def do_play(self) -> None:
        self.replay.play()
        self.paint()

    def do_event_on(self) -> None:
        self._go(self._at + 1)

    def do_event_back(self) -> None:
        self._go(self._at - 1)

    def do_pull_on(self) -> None:
        timeline = self.replay.timeline
        if timeline is not None:
            self._go(timeline.next_pull())

    def do_pull_back(self) -> None:
        timeline = self.replay.timeline
        if timeline is not None:
            self._go(timeline.previous_pull())

    def do_to_begin(self) -> None:
        self._go(1)  # before the first event there is no run to show

    def do_to_end(self) -> None:
        timeline = self.replay.timeline
        if timeline is not None:
            self._go(len(timeline))

    def do_faster(self) -> None:
        self.replay.change_speed(1)
        self.paint()

    def do_slower(self) -> None:
        self.replay.change_speed(-1)
        self.paint()

    def do_to_pull(self) -> None:
        from kbtui.tui.screens.dialogs import PromptScreen

        timeline = self.replay.timeline
        if timeline is None:
            return
        last = len(timeline.ends)

        def check(answer: str) -> str:
            fits = answer.isdecimal() and int(answer) <= last
            return "" if fits else f"a pull is a number from 0 to {last}"

        def go(answer: str | None) -> None:
            if answer:
                self._go(max(timeline.place_of_pull(int(answer)), 1))

        self.kbtui.push_screen(PromptScreen("Go to a pull", f"Show the run after a pull, 0 to {last}.", "7", check), go)
