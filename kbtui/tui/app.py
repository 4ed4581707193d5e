"""The application: its themes, its session, and what every screen asks of it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual.binding import Binding
from textual.events import Resize

from kbtui import clock, paths
from kbtui.errors import KbtuiError
from kbtui.state.run_state import LogLine
from kbtui.text import clean
from kbtui.tui import starter
from kbtui.tui.actions import find, key_name
from kbtui.tui.aftermath import crash_of
from kbtui.tui.clipboard import osc52, to_file
from kbtui.tui.driver import KbtuiDriver
from kbtui.tui.feed import LiveFeed, RunFeed
from kbtui.tui.glyphs import to_ascii
from kbtui.tui.keymap import Keymap
from kbtui.tui.newcomer import Newcomer
from kbtui.tui.pace import Pace
from kbtui.tui.screens.base import Held, KbtuiScreen
from kbtui.tui.session import Session
from kbtui.tui.terminal import Terminal, describe_terminal, require_terminal
from kbtui.tui.theming import ThemedApp

if TYPE_CHECKING:
    from textual.worker import Worker

    from kbtui.errors import Crash
    from kbtui.state.commands import AnyCommand
    from kbtui.tui.themes import BadTheme

TICK_S = 0.5
"""Changes are gathered and painted this often."""
SLOW_TICK_S = 2.0
"""The same over a slow link (`--low-bandwidth`)."""
SLOW_SHARE = 0.25
"""What is sent over a slow link, as a share of what is sent otherwise."""
FIRST_S = 0.1
"""How long a run's screen waits for what it is to show."""
TOAST_S = 4.0
TOASTS = 2
"""Toasts on the screen at a time, the newest: `M` has the others."""
MESSAGES = 500

Severity = Literal["info", "warning", "error"]


class KbtuiApp(ThemedApp, inherit_bindings=False):
    """A viewer of runs. `run_id` None opens the home screen; `replay` shows the run with a slider instead of following it."""

    CSS_PATH: ClassVar[Any] = ["styles/app.tcss", "styles/roles.tcss"]
    TITLE = "kbtui"
    ENABLE_COMMAND_PALETTE = False
    # Not Textual's own: ctrl+q would end the cockpit beside the registry of keys.
    BINDINGS: ClassVar[Any] = [Binding("ctrl+c", "say_how_to_leave", show=False)]
    AUTO_FOCUS = ""
    NOTIFICATION_TIMEOUT = TOAST_S

    def __init__(
        self,
        run_id: str | None,
        *,
        read_only: bool = False,
        replay: bool = False,
        ascii: bool = False,
        theme: str | None = None,
        low_bandwidth: bool = False,
        keys: Keymap | None = None,
        newcomer: Newcomer | None = None,
        terminal: Terminal | None = None,
        make_feed: Callable[[str], RunFeed] = LiveFeed,
    ) -> None:
        """`theme` None is the default for the terminal. `make_feed` is replaced in tests."""
        known = terminal if terminal is not None else describe_terminal()
        super().__init__(known, theme, low_bandwidth=low_bandwidth)
        self.ascii_glyphs = ascii or known.ascii
        self.read_only = read_only
        self.keys = keys if keys is not None else Keymap()
        self.set_keymap(self.keys.for_textual())
        self._run_id = run_id
        self._replay = replay
        self._make_feed = make_feed
        self.session: Session | None = None
        self.messages: deque[LogLine] = deque(maxlen=MESSAGES)
        """What was said in toasts, to be read again."""
        self.query_kept = ""
        """The SQL screen's query as it was left, for the next time it is opened."""
        self.editor_named = False
        """Whether a person was told which editor opens, where none was chosen by the environment."""
        self.crash: Crash | None = None
        """What is known about the bug that ended the app."""
        self.newcomer = newcomer if newcomer is not None else Newcomer(None)
        self._ticks = 0
        self._shown: tuple[Session, int] | None = None
        """The session and its version that the last tick painted whole."""
        self._pace = Pace(SLOW_SHARE if low_bandwidth else 1.0)
        if self.ascii_glyphs:
            self.add_class("-ascii")

    # ------------------------------------------------------------ themes

    def next_theme(self) -> None:
        """Use the theme after the current one, and name it."""
        names = self.theme_names()
        if names:
            at = names.index(self.theme) if self.theme in names else -1
            self.theme = names[(at + 1) % len(names)]
            self.tell(f"theme {self.theme}")

    def tell_bad_themes(self, complaints: list[BadTheme]) -> None:
        """One toast for all of them; the log has each."""
        if not complaints:
            return
        first, more = complaints[0].reason, len(complaints) - 1
        if self.session is not None:
            for bad in complaints:
                self.session.say(bad.reason, "warning")
        self._toast(f"{first}; {more} more in the log" if more else first, "warning")

    # ------------------------------------------------------------ life

    async def on_mount(self) -> None:
        self._watch_signals()
        self.set_interval(SLOW_TICK_S if self.low_bandwidth else TICK_S, self.tick)
        if self._run_id is None:
            await self.go_home()
        elif self._replay:
            await self.replay(self._run_id)
        else:
            await self.attach(self._run_id)
        self.watch_theme_files()
        if self.unknown_theme is not None:
            self.tell(f"there is no theme {self.unknown_theme}: `kbtui themes` lists them", "warning")

    def _watch_signals(self) -> None:
        """End in good order when the terminal or the system says so: the run does not care."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGHUP, signal.SIGTERM):
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread, as in some tests
                loop.add_signal_handler(number, self.exit, 128 + number)

    async def on_unmount(self) -> None:
        if self.session is not None:
            await self.session.feed.close()

    def _handle_exception(self, error: Exception) -> None:
        """End, and leave the telling to the command line: a traceback painted here would show foreign text raw."""
        self._return_code = 1
        if self._exception is None:
            self._exception = error
            self.crash = crash_of(self)  # now: once the app has ended, size and screens are gone
            self._exception_event.set()
        self._close_messages_no_wait()

    @property
    def failure(self) -> Exception | None:
        """What ended the app unexpectedly."""
        return self._exception

    # ------------------------------------------------------------ the run

    async def attach(self, run_id: str) -> None:
        """Show a run in the cockpit."""
        from kbtui.tui.screens.cockpit import CockpitScreen

        await self._leave()
        session = Session(self._make_feed(run_id), read_only=self.read_only, sparklines=not self.low_bandwidth)
        await session.feed.start()
        await self._open(session, CockpitScreen())

    async def _open(self, session: Session, screen: KbtuiScreen[None]) -> None:
        """Show a screen over a session; instead of the one of another session, not on top of it.

        What there is, is taken in before, so that the screen is not painted empty first; a long journal behind the empty
        screen, after `FIRST_S`. And painted once: Textual would paint a new screen when it is composed, when it gets its
        size, and after its first layout.
        """
        from kbtui.tui.screens.cockpit import CockpitScreen

        look = self.run_worker(session.advance(), exit_on_error=True)
        deadline = clock.monotonic() + FIRST_S
        while not look.is_finished and clock.monotonic() < deadline:
            await asyncio.sleep(FIRST_S / 100)
        self.session = session
        with self.batch_update():
            if isinstance(self.screen, CockpitScreen):
                await self.switch_screen(screen)
            else:
                await self.push_screen(screen)
        if not look.is_finished:
            self.run_worker(self._tick_after(look), exit_on_error=True)

    async def _tick_after(self, look: Worker[bool]) -> None:
        await look.wait()
        await self.tick()

    async def go_on(self, run_id: str, status: str) -> None:
        """Go on with a run in a new process and show it in the cockpit."""
        if status not in ("crashed", "stopped"):
            self.tell("only a stopped or crashed run can be gone on with", "warning")
            return
        self.tell(f"starting a process for {run_id} ...")
        try:
            gone_on = await starter.go_on(run_id)
        except KbtuiError as error:
            self.tell(str(error), "error")
            return
        await self.attach(gone_on)

    async def replay(self, run_id: str) -> None:
        """Show a recorded run with a slider; nothing can be changed."""
        from kbtui.tui.replaying import ReplaySession
        from kbtui.tui.screens.replay import ReplayScreen

        await self._leave()
        await self._open(ReplaySession(run_id), ReplayScreen())

    async def go_home(self) -> None:
        """Leave the run, which goes on, for the list of runs."""
        from kbtui.tui.screens.home import HomeScreen

        await self._leave()
        with self.batch_update():
            while len(self.screen_stack) > 1:
                await self.pop_screen()
            await self.push_screen(HomeScreen())

    async def _leave(self) -> None:
        session, self.session = self.session, None
        if session is not None:
            await session.feed.close()

    async def tick(self) -> None:
        """Take in what happened and paint it."""
        self._mend_size()
        if self.session is None or self.session.advancing:
            return
        await self.session.advance()
        self._ticks += 1
        shown = (self.session, self.session.version)
        if shown == self._shown and not self.session.moves:
            return
        if isinstance(self.screen, KbtuiScreen) and not self._terminal_is_behind():
            held = self._held()
            self.screen.paint_all(held)
            self._shown = shown if held == "nothing" else None

    def _mend_size(self) -> None:
        missed = self._driver.missed_size(self.screen.size) if isinstance(self._driver, KbtuiDriver) else None
        if missed is not None:
            # the app passes a size on only when it is new to it
            target = self.screen if self.size == missed else self
            target.post_message(Resize(missed, missed))

    def _terminal_is_behind(self) -> bool:
        # what changed meanwhile is painted in one go once the terminal reads again
        return isinstance(self._driver, KbtuiDriver) and self._driver.is_behind

    def _held(self) -> Held:
        sent = self._driver.sent if isinstance(self._driver, KbtuiDriver) else 0
        if not self._pace.may_paint(clock.monotonic(), sent, self.size.width * self.size.height):
            return "panes"
        # over a slow link, panes that nobody looks into are painted every other time
        return "unfocused" if self.low_bandwidth and self._ticks % 2 == 0 else "nothing"

    @property
    def why_no_commands(self) -> str:
        """Why the run cannot be steered from here; "" when it can."""
        return self.session.why_no_commands if self.session is not None else "no run is open"

    async def ask(self, command: AnyCommand) -> bool:
        """Send a command to the run and show what it answered. Whether it was done."""
        if self.session is None:
            self.tell("no run is open", "warning")
            return False
        done, text = await self.session.ask(command)
        self._toast(text, "info" if done else "warning")
        await self.tick()
        return done

    def open_candidate(self, candidate_id: int, tab: str = "source") -> None:
        """Show one candidate."""
        from kbtui.tui.screens.candidate import CandidateScreen

        if isinstance(self.screen, CandidateScreen):
            self.screen.show_candidate(candidate_id)
        else:
            self.push_screen(CandidateScreen(candidate_id, tab))

    def open_pull(self, pull: int) -> None:
        """Show what is being written in a pull, and the candidate once it is one."""
        from kbtui.tui.screens.candidate import CandidateScreen

        self.push_screen(CandidateScreen(None, "prompt", pull=pull))

    def choose_in_tree(self, candidate_id: int) -> None:
        """Put the cockpit's cursor on a candidate."""
        from kbtui.tui.screens.cockpit import CockpitScreen

        for screen in self.screen_stack:
            if isinstance(screen, CockpitScreen):
                screen.choose(candidate_id)

    @property
    def takes_keys(self) -> bool:
        return not isinstance(self.screen, KbtuiScreen) or self.screen.is_made

    # ------------------------------------------------------------ telling

    def action_say_how_to_leave(self) -> None:
        """What ctrl+c does: it is the first key of many people, and must neither end anything nor do nothing."""
        key = key_name(self.keys.keys_of(find("detach", "any"))[0])
        self.tell(f"{key} leaves the cockpit; a run goes on without it", "info")

    def tell(self, text: str, level: Severity = "info") -> None:
        """Say one sentence: as a toast, and in the log of the run if one is open."""
        if self.session is not None:
            self.session.say(text, level)
        self._toast(text, level)

    def refuse(self, text: str) -> None:
        """Say why something was not done, as a toast alone: it happened to this viewer, and the run's log is no place for it."""
        self._toast(text, "warning")

    def _toast(self, text: str, level: Severity) -> None:
        self.messages.append(LogLine(clock.wall(), level, text))
        safe = clean(text)
        severity = {"info": "information"}.get(level, level)
        self.notify(
            to_ascii(safe) if self.ascii_glyphs else safe,
            severity=severity,  # type: ignore[arg-type]
            markup=False,
        )

    def _refresh_notifications(self) -> None:
        # Textual's, which stacks them as high as the screen
        for old in list(self._notifications)[:-TOASTS]:
            del self._notifications[old]
        super()._refresh_notifications()

    def copy_text(self, text: str, name: str, what: str) -> None:
        """Copy `text` to the clipboard; where it is too long for the terminal, into a file that is named."""
        sequence = osc52(text)
        if sequence is not None and self._driver is not None:
            self._driver.write(sequence)
            self.tell(f"{what} was sent to the clipboard ({len(text.encode('utf-8', 'surrogatepass')):,} bytes)")
            return
        try:
            path = to_file(text, name)
        except OSError as error:
            self.tell(f"{what} is too long for the clipboard and cannot be written: {error.strerror or error}", "error")
        else:
            self.tell(f"{what} is too long for the clipboard: it is in {path}")


def run_app(
    run_id: str | None,
    *,
    read_only: bool = False,
    replay: bool = False,
    ascii: bool = False,
    theme: str | None = None,
    mouse: bool = True,
    low_bandwidth: bool = False,
    keys: Keymap | None = None,
) -> int:
    """Show the cockpit on a run, its replay, or the home screen; the exit status.

    Raises UsageError where there is no terminal to paint on, and Crash when a bug ended the app.
    """
    require_terminal("kbtui", "run with --headless, or look with `kbtui runs` and `kbtui history`")
    app = KbtuiApp(
        run_id,
        read_only=read_only,
        replay=replay,
        ascii=ascii,
        theme=theme,
        low_bandwidth=low_bandwidth,
        keys=keys,
        newcomer=Newcomer(paths.hints_file()),
    )
    status = app.run(mouse=mouse)
    if app.failure is not None:
        raise app.crash or crash_of(app) from app.failure
    return status if status is not None else app.return_code or 0
