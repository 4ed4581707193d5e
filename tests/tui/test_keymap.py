"""Keys from the configuration: what is refused, and that footer, help, `kbtui keys` and the documentation say the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tui_drive import drive
from tui_sample import sample

from kbtui import paths
from kbtui.cli.main import main
from kbtui.config import load_settings
from kbtui.errors import ConfigError
from kbtui.tui.actions import ACTIONS, find, footer_of, key_name, keys_page
from kbtui.tui.keymap import Keymap, key_from, read_keymap
from kbtui.tui.screens.pick import PickScreen

DOCS = Path(__file__).resolve().parents[2] / "docs"


def configured(text: str) -> Path:
    file = paths.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def effective_keymap() -> Keymap:
    settings, origins = load_settings()
    return read_keymap(settings.keys, origins["keys"])


@pytest.mark.parametrize(
    ("text", "key"),
    [("?", "question_mark"), ("esc", "escape"), ("page up", "pageup"), ("pageup", "pageup"), ("P", "P"), ("ctrl+p", "ctrl+p"),
     ("f5", "f5"), ("space", "space"), ("/", "slash"), ("slash", "slash"), ("ä", "ä"),
     ("nokey", None), ("", None), ("<any>", None), ("ctrl+?", None), ("\x1b", None)],
)  # fmt: skip
def test_names_of_keys(text: str, key: str | None) -> None:
    assert key_from(text) == key


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: a.full_id)
def test_every_key_of_the_registry_can_be_written(action: object) -> None:
    for key in action.keys:  # type: ignore[attr-defined]
        assert key_from(key_name(key)) == key


def test_a_table_is_read_with_and_without_quotes() -> None:
    configured('[keys]\n"cockpit.pause" = "P"\nlist.cursor_down = ["down", "J"]\n')
    keymap = effective_keymap()
    assert keymap.keys_of(find("pause", "cockpit")) == ("P",)
    assert keymap.keys_of(find("cursor_down", "list")) == ("down", "J")
    assert keymap.keys_of(find("step", "cockpit")) == find("step", "cockpit").keys


def test_a_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBTUI_KEYS", "cockpit.pause=P, any.theme=f4")
    assert load_settings()[0].keys == {"cockpit.pause": ("P",), "any.theme": ("f4",)}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('"cockpit.paus" = "P"', "[keys] names cockpit.paus, which is no action; did you mean cockpit.pause?"),
        ('"cockpit.pause" = "hyper+p"', "[keys] cockpit.pause is 'hyper+p', which is no key"),
        ('"cockpit.pause" = "s"', "[keys] gives s to both cockpit.pause and cockpit.step"),
        ('"cockpit.pause" = "q"', "[keys] gives q to both any.detach and cockpit.pause"),
        ('"cockpit.pause" = "j"', "[keys] gives j to both cockpit.pause and list.cursor_down"),
        ('"tree.fold_all" = "space"', "[keys] gives space to both cockpit.pause and tree.fold_all"),
        ('"cockpit.pause" = []', "keys must be a table of actions and their keys"),
        ('"cockpit.pause" = 3', "keys must be a table of actions and their keys"),
    ],
)
def test_a_bad_table_is_an_error_that_names_the_file(table: str, complaint: str) -> None:
    file = configured(f"[keys]\n{table}\n")
    with pytest.raises(ConfigError) as error:
        effective_keymap()
    assert str(error.value).startswith(str(file))
    assert complaint in str(error.value)


def test_two_actions_may_swap_keys() -> None:
    keymap = read_keymap({"cockpit.pause": ("s",), "cockpit.step": ("space",)}, "x.toml")
    assert keymap.for_textual() == {"cockpit.pause": "s", "cockpit.step": "space"}


async def test_a_changed_key_acts_and_is_shown_everywhere() -> None:
    keymap = read_keymap({"cockpit.pause": ("s",), "cockpit.step": ("space",), "list.cursor_down": ("J",)}, "x.toml")
    async with drive(sample().events, keys=keymap) as d:
        await d.press("s", "space")
        assert [type(c).__name__ for c in d.feed.commands] == ["Pause", "Step"]
        assert "s pause" in d.lines[-1]
        assert "space step" in d.lines[-1]
        before = d.app.screen.focused.cursor  # type: ignore[union-attr]
        await d.press("g", "J")
        assert d.app.screen.focused.cursor == 1 != before  # type: ignore[union-attr]
        await d.press("j")
        assert d.app.screen.focused.cursor == 1  # type: ignore[union-attr]
        await d.press("question_mark")
        screen = d.app.screen
        assert isinstance(screen, PickScreen)
        texts = ["".join(span.text for span in item.line) for item in screen._items]
        assert any(text.startswith(" s ") and find("pause", "cockpit").help in text for text in texts)


def test_kbtui_keys_prints_the_keys_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    configured('[keys]\n"cockpit.pause" = "P"\n')
    assert main(["keys", "--json"]) == 0
    entries = {entry["name"]: entry for entry in msgspec.json.decode(capsys.readouterr().out)}
    assert entries.keys() == {action.full_id for action in ACTIONS}
    assert (entries["cockpit.pause"]["keys"], entries["cockpit.pause"]["changed"]) == (["P"], True)
    assert (entries["cockpit.step"]["keys"], entries["cockpit.step"]["changed"]) == (["s"], False)
    assert main(["keys"]) == 0
    assert any(line.split()[:2] == ["Cockpit", "P"] for line in capsys.readouterr().out.splitlines())
    configured('[keys]\n"cockpit.pause" = "s"\n')
    assert main(["keys"]) == 2
    assert "config.toml: [keys] gives s to both" in capsys.readouterr().err


def test_the_documentation_is_the_registry(capsys: pytest.CaptureFixture[str]) -> None:
    """`kbtui keys --markdown > docs/keys.md` writes the page anew."""
    assert main(["keys", "--markdown"]) == 0
    page = capsys.readouterr().out
    assert page == keys_page() == (DOCS / "keys.md").read_text()
    for action in ACTIONS:
        assert f"`{action.full_id}`" in page


def test_the_footer_shows_keys_of_the_registry() -> None:
    for action in footer_of(*{action.place for action in ACTIONS}):
        assert Keymap().keys_of(action) == action.keys
