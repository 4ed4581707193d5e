"""The SQL screen: a query, its answer, and the schema beside them. The database is opened for each query and closed again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.events import Resize

from kbtui import clock
from kbtui.errors import KbtuiError
from kbtui.text import plural
from kbtui.tui.actions import bindings_of
from kbtui.tui.line import EMPTY, Line, LineBuilder, Lines, both_ends, text_line
from kbtui.tui.screens.base import KbtuiScreen
from kbtui.tui.screens.dialogs import PromptScreen
from kbtui.tui.screens.saved import SavedScreen, ask_name
from kbtui.tui.views.sql import AnswerSource, SchemaSource
from kbtui.tui.widgets.editor import Editor
from kbtui.tui.widgets.line_view import LineView
from kbtui.tui.widgets.strips import Footer, Strip

if TYPE_CHECKING:
    from textual.worker import Worker

    from kbtui.history.asking import Stopper, Table

ROWS_MOST = 10_000
"""Rows that are fetched for the screen; a file gets all of them."""
WIDE = 100
"""Columns from which the schema stands beside the query."""
AGAIN_S = 0.05
"""A query that does not end is told to again after so long."""
STOPPING_S = 10.0
"""How long a query is told to end; esc again tells it again."""
LEAVING_S = 2.0
"""How long a screen that is left waits for its query."""
FIRST = "select place, problem, device, timing, run_id, ratio, estimate, cost_usd from leaderboard where place = 1"


class ListView(LineView):
    """A pane with a cursor."""

    has_cursor = True


class SqlScreen(KbtuiScreen[None]):
    """Editor on top, the answer below, the schema on the right."""

    PLACES: ClassVar[tuple[str, ...]] = ("sql", "any")
    BINDINGS = bindings_of("sql")

    def __init__(self) -> None:
        super().__init__()
        self.stopper: Stopper | None = None
        """The query that runs now."""
        self._query: asyncio.Task[Table] | None = None
        """The thread that runs it: it outlives the worker that waits for it."""
        self._waiting: Worker[None] | None = None
        self._asked = ""
        self._said: Line = EMPTY
        self._answer: AnswerSource | None = None

    def body(self) -> ComposeResult:
        yield Strip(id="header")
        with Container(id="sql"):
            with Container(id="asking"):
                yield Editor(self.kbtui.query_kept or FIRST, id="editor")
                yield ListView("Answer", id="answer")
            yield ListView("Schema", id="schema")
        yield Strip(id="about")
        yield Footer("sql", "any")

    def on_mount(self) -> None:
        super().on_mount()
        editor = self.query_one(Editor)
        editor.move_cursor(editor.document.end)
        self.set_focus(editor)
        self.query_one("#schema", ListView).show(SchemaSource())
        self.query_one("#answer", ListView).show(_hint())

    async def on_unmount(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()  # there is nowhere left to show the answer
        # the program could not end before the query did, and the file is free for others once the screen is gone
        await self._end_query(LEAVING_S)

    def on_resize(self, event: Resize) -> None:
        super().on_resize(event)
        self.set_class(self.size.width >= WIDE, "-wide")
        self.call_after_refresh(self.paint)

    def paint_panes(self) -> None:
        left = LineBuilder().add(" kbtui", "accent").add("  history, read-only", "label").line()
        self.query_one("#header", Strip).set_lines([both_ends(left, self._said, self.size.width)])
        schema = self.query_one("#schema", ListView)
        source = schema.source
        about = source.about(schema.cursor) if isinstance(source, SchemaSource) and schema.has_focus else ""
        self.query_one("#about", Strip).set_lines([text_line(f" {about}", "label")])

    def _say(self, text: str, role: str) -> None:
        self._said = text_line(f"{text} ", role)
        self.paint()

    def on_line_view_chosen(self) -> None:
        self.paint()

    def on_descendant_focus(self) -> None:
        # below 100 columns the schema takes the place of the answer while it is in use
        self.set_class(self.query_one("#schema", ListView).has_focus, "-schema")
        self.paint()

    # ------------------------------------------------------------ asking

    def do_run_query(self) -> None:
        from kbtui.history.asking import Stopper

        query = self.query_one(Editor).text.strip()
        if self.stopper is not None:
            self.kbtui.tell("a query runs: esc stops it", "warning")
        elif not query:
            self._say("write a query first", "warn")
        else:
            self.stopper = stopper = Stopper()
            self._query = asyncio.create_task(asyncio.to_thread(_found, query, stopper), name="query")
            self._say("asking; esc stops it", "info")
            self._waiting = self.run_worker(self._ask(query, self._query), exit_on_error=True)

    async def _ask(self, query: str, answer: asyncio.Task[Table]) -> None:
        began = clock.monotonic()
        try:
            found = await asyncio.shield(answer)
        except KbtuiError as error:
            self._show_error(str(error))
        else:
            self._show(found, query, clock.monotonic() - began)
        finally:
            self.stopper = None

    def _show(self, found: Table, query: str, seconds: float) -> None:
        self._asked = query
        self._answer = AnswerSource(found)
        note = text_line(f"the first {ROWS_MOST:,}; f4 writes all" if found.more else "", "warn")
        answer = self.query_one("#answer", ListView)
        answer.cursor = answer.top = answer.left = 0
        answer.has_cursor = True
        answer.show(self._answer, note=note)
        rows = f"{len(found.rows):,}{'+' if found.more else ''} row{'' if len(found.rows) == 1 else 's'}"
        self._say(f"{rows} in {seconds * 1e3:.0f} ms", "text")

    def _show_error(self, text: str) -> None:
        """Below the query and whole, since DuckDB says what it would have understood."""
        import textwrap

        self._asked, self._answer = "", None
        answer = self.query_one("#answer", ListView)
        answer.has_cursor = False
        lines = [text_line(f" {part}", "bad") for part in textwrap.wrap(text, max(answer.size.width - 2, 20))]
        answer.show(Lines(lines))
        self._say("no answer", "bad")

    async def _end_query(self, wait_s: float) -> None:
        """Stop the query that runs, if one does, and wait for its end, `wait_s` seconds at most.

        DuckDB forgets a stop that comes just before the query begins, so it is said again until it was heard.
        """
        query, stopper = self._query, self.stopper
        deadline = clock.monotonic() + wait_s
        while query is not None and stopper is not None and not query.done() and clock.monotonic() < deadline:
            stopper.stop()
            await asyncio.wait({query}, timeout=AGAIN_S)
        if query is not None and query.done() and not query.cancelled():
            query.exception()  # a worker that is gone no longer asks for it

    def do_leave(self) -> None:
        if self.stopper is not None:
            self.run_worker(self._end_query(STOPPING_S), group="stop", exclusive=True, exit_on_error=True)
            return
        self.kbtui.query_kept = self.query_one(Editor).text
        self.dismiss(None)

    # ------------------------------------------------------------ panes and names

    def _step(self, by: int) -> None:
        panes = [self.query_one(Editor), self.query_one("#answer", ListView), self.query_one("#schema", ListView)]
        at = next((index for index, pane in enumerate(panes) if pane.has_focus), 0)
        self.set_focus(panes[(at + by) % len(panes)])

    def do_next_pane(self) -> None:
        self._step(1)

    def do_previous_pane(self) -> None:
        self._step(-1)

    def do_insert_name(self) -> None:
        schema = self.query_one("#schema", ListView)
        source = schema.source
        if schema.has_focus and isinstance(source, SchemaSource):
            editor = self.query_one(Editor)
            editor.insert(source.name_at(schema.cursor))
            self.set_focus(editor)

    # ------------------------------------------------------------ saved queries, files

    def do_saved_queries(self) -> None:
        from kbtui.history.saved import saved_queries

        def use(text: str | None) -> None:
            if text:
                self.query_one(Editor).put(text)

        self.kbtui.push_screen(SavedScreen(saved_queries(), self.query_one(Editor).text), use)

    def do_save_query(self) -> None:
        from kbtui.history.saved import saved_queries

        text = self.query_one(Editor).text.strip()
        if text:
            ask_name(self.kbtui, saved_queries(), text)
        else:
            self._say("there is no query to save", "warn")

    def do_save_result(self) -> None:
        if not self._asked:
            self._say("run a query first: its answer is what is written", "warn")
            return
        question = PromptScreen(
            "Write the answer to a file",
            "All its rows; the name ends in .csv, .json, .jsonl or .parquet. No file is overwritten.",
            "answer.csv",
            _unwritable,
        )
        self.kbtui.push_screen(question, self._write)

    async def _write(self, name: str | None) -> None:
        if not name:
            return
        file = Path(name).expanduser()
        try:
            rows = await asyncio.to_thread(_written, self._asked, file)
        except KbtuiError as error:
            self.kbtui.tell(str(error), "error")
        else:
            self.kbtui.tell(f"wrote {plural(rows, 'row')} to {file.absolute()}")


def _found(query: str, stopper: Stopper) -> Table:
    from kbtui.history.database import History

    history = History()
    history.ingest()
    return history.sql(query, limit=ROWS_MOST, stopper=stopper)


def _written(query: str, file: Path) -> int:
    from kbtui.history.database import History
    from kbtui.history.export import require_writable, write_answer

    require_writable(file, overwrite=False)
    return write_answer(History(), query, file)


def _unwritable(name: str) -> str:
    from kbtui.history.export import require_writable

    try:
        require_writable(Path(name).expanduser(), overwrite=False)
    except KbtuiError as error:
        return str(error)
    return ""


def _hint() -> Lines:
    hint = LineBuilder().add(" f5", "key").add(" runs the query, ", "label").add("tab", "key")
    return Lines(
        [EMPTY, hint.add(" goes to the schema, ", "label").add("f2", "key").add(" has saved ones", "label").line()]
    )
