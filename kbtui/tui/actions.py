"""The one registry of what a person can do in the cockpit.

Key bindings, the footer, the help, the palette and the documentation page are all made from `ACTIONS`; a test holds
them equal. An action `pause` of the screen `cockpit` is carried out by the method `do_pause` of that screen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.binding import Binding

PLACES: dict[str, str] = {
    "any": "Everywhere",
    "home": "Home",
    "cockpit": "Cockpit",
    "arms": "Arm matrix",
    "tree": "Candidate tree",
    "candidate": "Candidate",
    "replay": "Replay",
    "compare": "Comparison of runs",
    "sql": "SQL",
    "list": "Any list",
    "force": "Force dialog",
    "form": "New run",
    "dialog": "Any dialog",
}
"""Where actions belong, with the titles that help and documentation use."""


@dataclass(frozen=True)
class Action:
    """One thing a person can do.

    `keys` are Textual key names, the first is the one shown. `label` is the footer's word. `writes` marks what changes
    the run: refused when read-only or when no run process listens. `footer` orders the footer, 0 leaves it out.
    """

    id: str
    place: str
    keys: tuple[str, ...]
    label: str
    help: str
    writes: bool = False
    footer: int = 0
    ended: bool = False
    """Whether the footer offers it of a run that no process serves, and only then."""

    @property
    def full_id(self) -> str:
        """`place.id`: how the configuration and Textual name it."""
        return f"{self.place}.{self.id}"

    @property
    def handler(self) -> str:
        """The method that carries it out."""
        return f"do_{self.id}"


ACTIONS: tuple[Action, ...] = (
    Action("help", "any", ("question_mark", "f1"), "help", "list every action; enter runs the chosen one", footer=90),
    Action("palette", "any", ("ctrl+p",), "palette", "find an action, a candidate or a theme by typing", footer=91),
    Action("detach", "any", ("q",), "detach", "leave the cockpit; a run goes on without it", footer=99),
    Action("theme", "any", ("T",), "theme", "use the next theme", footer=0),
    Action("redraw", "any", ("ctrl+l",), "redraw", "paint the whole screen again"),
    Action("messages", "any", ("M",), "messages", "read every message of this session again"),
    Action("screenshot", "any", ("S",), "screenshot", "write the screen to an SVG file in this folder"),
    Action("dismiss", "any", ("full_stop",), "got it", "put the hint for newcomers away for good"),
    # home
    Action("new_run", "home", ("n",), "new run", "choose a problem and start a run", footer=2),
    Action("attach", "home", ("enter",), "attach", "open the chosen run; a finished one opens read-only", footer=1),
    Action("go_on", "home", ("C",), "continue", "go on with a stopped or crashed run in a new process", footer=3),
    Action(
        "filter", "home", ("slash",), "filter", "show only runs that fit, such as problem:softmax speedup>1.2", footer=4
    ),
    Action("saved_filters", "home", ("F",), "saved filters", "use, save or forget a filter by its name"),
    Action("replay", "home", ("r",), "replay", "look at the chosen run as it was after any pull", footer=5),
    Action("mark", "home", ("space",), "mark", "mark the chosen run for a comparison, or unmark it", footer=6),
    Action(
        "compare", "home", ("c",), "compare", "compare the marked runs, or the marked one with the chosen", footer=7
    ),
    Action("sql", "home", ("s",), "sql", "ask the history database", footer=8),
    Action("clear", "home", ("escape",), "clear", "show all runs again, and forget the marks"),
    # cockpit: steering
    Action("pause", "cockpit", ("space",), "pause", "pause after the pull in flight, or resume", True, 1),
    Action("step", "cockpit", ("s",), "step", "play exactly one pull, then pause again", True, 2),
    Action(
        "force", "cockpit", ("f",), "force", "choose the arm of the next pull from a list with its statistics", True, 3
    ),
    Action("ban", "cockpit", ("b",), "ban", "ban an arm or a strategy, or lift a ban", True, 4),
    Action(
        "pin", "cockpit", ("p",), "pin", "make the chosen candidate the parent of coming pulls, or unpin it", True, 5
    ),
    Action("inject", "cockpit", ("i",), "inject", "queue your own version: a file, or the chosen one edited", True, 6),
    Action(
        "edit", "cockpit", ("I",), "edit", "edit the chosen candidate in your editor and queue what comes out", True
    ),
    Action("hint", "cockpit", ("h",), "hint", "add a sentence of yours to every coming prompt", True),
    Action("more", "cockpit", ("right_square_bracket",), "+5 pulls", "let the run play five pulls more", True),
    Action("fewer", "cockpit", ("left_square_bracket",), "-5 pulls", "let the run play five pulls fewer", True),
    Action("more_usd", "cockpit", ("right_curly_bracket",), "+dollars", "raise the limit in dollars by a step", True),
    Action("fewer_usd", "cockpit", ("left_curly_bracket",), "-dollars", "lower the limit in dollars by a step", True),
    Action("tag", "cockpit", ("t",), "tag", "mark the chosen candidate with a word and a note of yours", True),
    Action(
        "end_work",
        "cockpit",
        ("x",),
        "end work",
        "kill the chosen candidate while it is judged, or cancel the reply that is being written",
        True,
    ),
    Action("undo", "cockpit", ("u",), "undo", "take the last steering act back", True),
    Action("stop", "cockpit", ("Q",), "stop run", "end the run for good, after asking", True),
    Action(
        "go_on",
        "cockpit",
        ("C",),
        "continue",
        "go on with an ended or crashed run in a new process",
        footer=9,
        ended=True,
    ),
    # cockpit: looking
    Action("open", "cockpit", ("enter",), "open", "open the chosen candidate", footer=7),
    Action("diff", "cockpit", ("d",), "diff", "open the chosen candidate's change against its parent", footer=8),
    Action("copy", "cockpit", ("c",), "copy", "copy the chosen candidate's source to the clipboard"),
    Action(
        "export",
        "cockpit",
        ("e",),
        "export",
        "write the chosen candidate's source to a file in this folder",
        footer=11,
        ended=True,
    ),
    Action("replay", "cockpit", ("r",), "replay", "look at the run as it was after any pull", footer=10, ended=True),
    Action("compare", "cockpit", ("m",), "mark", "mark the chosen candidate to compare others with it"),
    Action("axis", "cockpit", ("dollar_sign",), "curve over", "draw the curve over pulls, dollars or time"),
    Action("log_level", "cockpit", ("w",), "filter log", "show all of the log, what people did, warnings, or errors"),
    Action("next_pane", "cockpit", ("tab",), "next pane", "go to the next pane"),
    Action("previous_pane", "cockpit", ("shift+tab",), "previous pane", "go to the pane before"),
    Action("pane_tree", "cockpit", ("1",), "tree", "go to the candidate tree"),
    Action("pane_arms", "cockpit", ("2",), "arms", "go to the arm matrix"),
    Action("pane_gpu", "cockpit", ("3",), "gpu", "go to the GPU counters"),
    Action("pane_curve", "cockpit", ("4",), "curve", "go to the best-so-far curve"),
    Action("pane_log", "cockpit", ("5",), "log", "go to the log"),
    Action("home", "cockpit", ("escape",), "home", "back to the list of runs", footer=12, ended=True),
    # the tree
    Action("fold", "tree", ("left", "H"), "fold", "fold the branch, or go to the parent"),
    Action("unfold", "tree", ("right", "L"), "unfold", "unfold the branch, or go to its first child"),
    Action("fold_all", "tree", ("z",), "fold all", "show everything, or fold old and dropped candidates again"),
    Action("go_best", "tree", ("asterisk", "o"), "best", "go to the best candidate"),
    # the matrix
    Action("force_cell", "arms", ("enter",), "force", "force the arm under the cursor", True),
    Action("cell_left", "arms", ("left", "H"), "left", "one strategy to the left"),
    Action("cell_right", "arms", ("right", "L"), "right", "one strategy to the right"),
    # a candidate
    Action("tab_source", "candidate", ("1",), "source", "its source"),
    Action("tab_diff", "candidate", ("2",), "diff", "what changed"),
    Action("tab_cases", "candidate", ("3",), "cases", "its time by case"),
    Action("tab_facts", "candidate", ("4",), "facts", "what the compiler made of it, its signature and roofline"),
    Action("tab_prompt", "candidate", ("5",), "prompt", "what the model was asked and what it replied"),
    Action("tab_verdict", "candidate", ("6",), "verdict", "how it was judged, with the evidence"),
    Action("next_tab", "candidate", ("tab",), "next tab", "the next tab", footer=1),
    Action("previous_tab", "candidate", ("shift+tab",), "previous tab", "the tab before"),
    Action(
        "diff_other",
        "candidate",
        ("d",),
        "diff against",
        "compare with the parent, the baseline, the best or the marked",
        footer=2,
    ),
    Action("side_by_side", "candidate", ("v",), "side by side", "the two versions beside each other, or in one column"),
    Action("compare", "candidate", ("m",), "mark", "mark it to compare others with it"),
    Action("next_candidate", "candidate", ("n",), "next", "the next candidate", footer=3),
    Action("previous_candidate", "candidate", ("N",), "previous", "the candidate before"),
    Action("go_parent", "candidate", ("P",), "parent", "its parent", footer=4),
    Action("copy", "candidate", ("c",), "copy", "copy its source to the clipboard", footer=5),
    Action("export", "candidate", ("e",), "export", "write its source to a file in this folder", footer=6),
    Action("pin", "candidate", ("p",), "pin", "make it the parent of coming pulls, or unpin it", True, 7),
    Action("tag", "candidate", ("t",), "tag", "mark it with a word and a note of yours", True),
    Action("edit", "candidate", ("I",), "edit", "edit it in your editor and queue what comes out", True),
    Action("end_work", "candidate", ("x",), "end work", "kill it while it is judged, or cancel its reply", True),
    Action("undo", "candidate", ("u",), "undo", "take the last steering act back", True),
    Action("back", "candidate", ("escape",), "back", "back to the cockpit", footer=8),
    # a replay
    Action("play", "replay", ("space",), "play", "play the run, or hold it", footer=1),
    Action("pull_on", "replay", ("right_square_bracket",), "pull on", "to the end of the next pull", footer=2),
    Action("pull_back", "replay", ("left_square_bracket",), "pull back", "to the end of the pull before", footer=3),
    Action("event_on", "replay", ("n",), "event on", "one event on", footer=4),
    Action("event_back", "replay", ("N",), "event back", "one event back", footer=5),
    Action("to_pull", "replay", ("number_sign",), "go to pull", "to the end of a pull by its number", footer=6),
    Action("faster", "replay", ("plus",), "faster", "play faster", footer=7),
    Action("slower", "replay", ("minus",), "slower", "play slower", footer=8),
    Action("to_begin", "replay", ("less_than_sign",), "begin", "to the beginning of the run"),
    Action("to_end", "replay", ("greater_than_sign",), "end", "to the end of the run"),
    # a comparison
    Action("back", "compare", ("escape",), "back", "back to the list of runs", footer=1),
    # the SQL screen
    Action("run_query", "sql", ("f5", "ctrl+r"), "run", "run the query", footer=1),
    Action("saved_queries", "sql", ("f2",), "saved", "put a saved query into the editor, or forget one", footer=2),
    Action("save_query", "sql", ("f3",), "save", "save the query under a name", footer=3),
    Action("save_result", "sql", ("f4",), "to file", "write the whole answer to a CSV, JSON or Parquet file", footer=4),
    Action("next_pane", "sql", ("tab",), "next pane", "to the next of editor, answer and schema", footer=5),
    Action("previous_pane", "sql", ("shift+tab",), "previous pane", "to the pane before"),
    Action("insert_name", "sql", ("enter",), "insert", "put the chosen table or column into the query"),
    Action("leave", "sql", ("escape",), "back", "stop the query that runs, else back to the list of runs", footer=6),
    # lists
    Action("cursor_up", "list", ("up", "k"), "up", "one line up"),
    Action("cursor_down", "list", ("down", "j"), "down", "one line down"),
    Action("page_up", "list", ("pageup", "ctrl+b"), "page up", "one page up"),
    Action("page_down", "list", ("pagedown", "ctrl+f"), "page down", "one page down"),
    Action("first", "list", ("home", "g"), "first", "the first line"),
    Action("last", "list", ("end", "G"), "last", "the last line"),
    Action("scroll_left", "list", ("left", "H"), "scroll left", "long lines: to the left"),
    Action("scroll_right", "list", ("right", "L"), "scroll right", "long lines: to the right"),
    # dialogs
    Action(
        "from_parent", "force", ("p",), "parent", "take the chosen candidate as the parent, or leave it to the policy"
    ),
    Action("field_next", "form", ("down", "tab"), "next field", "the next field"),
    Action("field_previous", "form", ("up", "shift+tab"), "field before", "the field before"),
    Action("value_next", "form", ("right",), "next choice", "the next choice of the field"),
    Action("value_previous", "form", ("left",), "choice before", "the choice before"),
    Action("start", "form", ("enter",), "start", "start the run"),
    Action("choose", "dialog", ("enter",), "choose", "take what is chosen"),
    Action("cancel", "dialog", ("escape",), "cancel", "close without doing anything"),
)
WRITING = tuple(action.id for action in ACTIONS if action.writes)
"""What changes a run: nothing for a viewer that is read-only."""

KEY_NAMES = {
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "dollar_sign": "$",
    "full_stop": ".",
    "asterisk": "*",
    "slash": "/",
    "number_sign": "#",
    "plus": "+",
    "minus": "-",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "esc",
    "pageup": "page up",
    "pagedown": "page down",
}
"""Textual key name -> what people call it, where the two differ."""


def key_name(key: str) -> str:
    """A Textual key name as it is written for people."""
    return KEY_NAMES.get(key, key)


def actions_of(*places: str) -> list[Action]:
    """The actions of these places, in the registry's order."""
    return [action for action in ACTIONS if action.place in places]


def find(action_id: str, *places: str) -> Action:
    """The action of that id in the first of `places` that has one. Raises KeyError."""
    for place in places:
        for action in ACTIONS:
            if action.place == place and action.id == action_id:
                return action
    raise KeyError(action_id)


def bindings_of(*places: str) -> list[Binding]:
    """Textual bindings for these places; all go to `action_perform`, which knows what may be refused."""
    return [
        Binding(
            ",".join(action.keys),
            f"perform('{action.id}')",
            action.label,
            show=False,
            # an input has arrow keys of its own, which must not win in a form
            priority=action.place == "form",
            id=action.full_id,
        )
        for action in actions_of(*places)
    ]


def footer_of(*places: str) -> list[Action]:
    """What the footer shows for these places, in order."""
    return sorted((a for a in actions_of(*places) if a.footer), key=lambda a: a.footer)


def keys_page(keys_of: Callable[[Action], tuple[str, ...]] = lambda action: action.keys) -> str:
    """The documentation page of all keys, in Markdown: what `kbtui keys --markdown` prints."""
    out = [
        "# Keys",
        "",
        "Every action is also in the help (`?`) and in the palette (`ctrl+p`). By the name in the last column the `[keys]` table",
        "of the [configuration](configuration.md#keys) gives an action other keys.",
    ]
    for place, title in PLACES.items():
        out += ["", f"## {title}", "", "| key | action | what it does | name |", "| --- | --- | --- | --- |"]
        for action in actions_of(place):
            keys = ", ".join(f"`{key_name(key)}`" for key in keys_of(action))
            ask = " Changes the run." if action.writes else ""
            text = f"{action.help[:1].upper()}{action.help[1:]}.{ask}"
            out.append(f"| {keys} | {action.label} | {text} | `{action.full_id}` |")
    return "\n".join(out) + "\n"
