"""Theme files: the shipped ones are whole, a bad one is named with its key."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from textual.color import Color
from tui_drive import drive
from tui_sample import sample

from kbtui import paths
from kbtui.tui.themes import COLOURS, DEFAULT, PLAIN, ThemeFileError, load_themes, read_theme

SHIPPED = sorted(path.stem for path in paths.themes_dir().glob("*.toml"))


def contrast(one: str, other: str) -> float:
    """WCAG contrast of two colours."""

    def luminance(text: str) -> float:
        parts = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in Color.parse(text).normalized]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def simulated(text: str, kind: str) -> tuple[float, float, float]:
    """The colour as a person without red, green or blue cones sees it (Viénot 1999; Brettel's plane for tritan, simplified)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in Color.parse(text).normalized]
    rows = {
        "protan": ((0.1124, 0.8876, 0.0), (0.1124, 0.8876, 0.0), (0.0040, -0.0040, 1.0)),
        "deutan": ((0.2928, 0.7072, 0.0), (0.2928, 0.7072, 0.0), (-0.0223, 0.0223, 1.0)),
        "tritan": ((1.0, 0.1524, -0.1524), (0.0, 0.8674, 0.1326), (0.0, 0.8674, 0.1326)),
    }[kind]
    seen = [sum(w * c for w, c in zip(row, linear, strict=True)) for row in rows]
    return tuple(max(0.0, c) ** (1 / 2.2) for c in seen)  # type: ignore[return-value]


def distance(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5


def test_at_least_six_are_shipped_and_all_load() -> None:
    themes, bad = load_themes()
    assert bad == []
    assert sorted(themes) == SHIPPED
    assert len(themes) >= 6
    assert {DEFAULT, PLAIN} <= set(themes)
    assert any(not theme.dark for theme in themes.values())


NOT_TEXT = {"background", "panel", "cursor", "added", "removed", "faint"}
"""Grounds, and the rails of the tree."""
MEANT_FOR = {
    "kbtui-dark": ("deutan", "protan"), "kbtui-light": ("deutan", "protan"), "red-green-safe": ("deutan", "protan"),
    "high-contrast": ("deutan", "protan"), "blue-yellow-safe": ("tritan",),
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SHIPPED if name != PLAIN])
def test_text_can_be_read(name: str) -> None:
    colours = read_theme(paths.themes_dir() / f"{name}.toml").variables
    for back in ("background", "panel", "cursor", "added", "removed"):
        assert contrast(colours["kb-foreground"], colours[f"kb-{back}"]) >= 7
    for role in COLOURS.keys() - NOT_TEXT:
        for back in ("background", "panel", "cursor"):
            assert contrast(colours[f"kb-{role}"], colours[f"kb-{back}"]) >= 4.5, (role, back)
    assert contrast(colours["kb-background"], colours["kb-accent"]) >= 4.5  # the active tab


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in MEANT_FOR.items() for kind in kinds])
def test_verdicts_differ_for_colour_blind_eyes(name: str, kind: str) -> None:
    colours = read_theme(paths.themes_dir() / f"{name}.toml").variables
    seen = {role: simulated(colours[f"kb-{role}"], kind) for role in ("good", "bad", "warning", "alarm")}
    assert distance(seen["good"], seen["bad"]) > 0.35
    for one, other in combinations(seen, 2):
        assert distance(seen[one], seen[other]) > 0.15, (one, other)


def whole() -> dict[str, str]:
    return dict.fromkeys(COLOURS, "#123456")


def write(path: Path, head: str, colours: dict[str, str]) -> Path:
    path.write_text(head + "[colours]\n" + "".join(f'{key} = "{value}"\n' for key, value in colours.items()))
    return path


@pytest.mark.parametrize(
    ("head", "change", "complaint"),
    [
        ("dark = true\n", {}, "`name` is missing"),
        ('name = "x"\ndark = 1\n', {}, "`dark` must be true or false"),
        ('name = "x"\ndark = true\nfont = "y"\n', {}, "`font` is not a key"),
        ('name = "x"\ndark = true\n', {"accent": "reddish"}, "`colours.accent` is 'reddish'"),
        ('name = "x"\ndark = true\n', {"accent": None}, "`colours.accent` is missing"),
        ('name = "x"\ndark = true\n', {"pink": "#ff00ff"}, "`colours.pink` is not a colour of a theme"),
        ("name = \n", {}, "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_key(
    tmp_path: Path, head: str, change: dict[str, str | None], complaint: str
) -> None:
    colours = {key: value for key, value in (whole() | change).items() if value is not None}
    with pytest.raises(ThemeFileError, match=complaint.split("`")[-1].split("(")[0] or complaint) as error:
        read_theme(write(tmp_path / "x.toml", head, colours))
    assert complaint in str(error.value)


def test_a_users_theme_is_found_and_wins() -> None:
    folder = paths.user_themes_dir()
    folder.mkdir(parents=True)
    write(folder / "mine.toml", f'name = "{DEFAULT}"\ndark = false\n', whole())
    write(folder / "new.toml", 'name = "new"\ndark = false\n', whole())
    themes, bad = load_themes()
    assert bad == []
    assert not themes[DEFAULT].dark
    assert "new" in themes


async def test_a_bad_file_gives_one_toast_and_the_rest_works() -> None:
    folder = paths.user_themes_dir()
    folder.mkdir(parents=True)
    write(folder / "bad.toml", 'name = "bad"\ndark = true\n', whole() | {"accent": "no"})
    async with drive(sample().events, (200, 50), theme="high-contrast") as d:
        assert d.text.count("`colours.accent` is 'no'") >= 1
        assert "bad.toml" in d.text
        assert d.app.theme == "high-contrast"
        assert "bad" not in d.app.theme_names()


async def test_a_file_that_changes_is_taken_in_while_one_looks() -> None:
    folder = paths.user_themes_dir()
    folder.mkdir(parents=True)
    file = write(folder / "mine.toml", 'name = "mine"\ndark = true\n', whole())
    async with drive(sample().events, theme="mine") as d:
        assert d.app.screen.role_style("text").color.get_truecolor().hex == "#123456"  # type: ignore[union-attr]
        write(file, 'name = "mine"\ndark = true\n', whole() | {"foreground": "#abcdef"})
        write(folder / "late.toml", 'name = "late"\ndark = true\n', whole())
        await d.app.look_at_theme_files()
        await d.settle()
        assert d.app.screen.role_style("text").color.get_truecolor().hex == "#abcdef"  # type: ignore[union-attr]
        assert "late" in d.app.theme_names()
        (folder / "late.toml").unlink()
        await d.app.look_at_theme_files()
        assert "late" not in d.app.theme_names()


async def test_a_file_that_breaks_is_said_once_and_the_theme_stays() -> None:
    folder = paths.user_themes_dir()
    folder.mkdir(parents=True)
    file = write(folder / "mine.toml", 'name = "mine"\ndark = true\n', whole())
    async with drive(sample().events, (200, 50), theme="mine") as d:
        for text in ("dark = ", "dark = tru"):
            file.write_text(f'name = "mine"\n{text}')
            await d.app.look_at_theme_files()
            await d.app.look_at_theme_files()
            await d.settle()
        assert d.app.theme == "mine"
        said = [line.text for line in d.app.session.replies if "mine.toml" in line.text]  # type: ignore[union-attr]
        assert len(said) == 2  # two different mistakes, each looked at twice
        write(file, 'name = "mine"\ndark = true\n', whole() | {"foreground": "#abcdef"})
        await d.app.look_at_theme_files()
        await d.settle()
        assert d.app.screen.role_style("text").color.get_truecolor().hex == "#abcdef"  # type: ignore[union-attr]


async def test_several_bad_files_give_one_toast() -> None:
    folder = paths.user_themes_dir()
    folder.mkdir(parents=True)
    for name in ("a", "b", "c"):
        write(folder / f"{name}.toml", f'name = "{name}"\ndark = true\n', whole() | {"accent": "no"})
    async with drive(sample().events, (200, 50)) as d:
        (toast,) = d.app._notifications
        assert toast.message.endswith("; 2 more in the log")


async def test_an_unknown_theme_is_said() -> None:
    async with drive(sample().events, theme="nope") as d:
        assert d.app.theme == DEFAULT
        assert "there is no theme nope" in d.text


@pytest.mark.parametrize("name", SHIPPED)
async def test_every_theme_paints_every_pane(name: str) -> None:
    async with drive(sample().events, theme=name) as d:
        await d.press("enter", "d", "escape")
        assert "★ #24" in d.text


def test_the_readme_describes_every_colour() -> None:
    page = (paths.themes_dir() / "README.md").read_text()
    for key, meaning in COLOURS.items():
        assert f"| `{key}` | {meaning} |" in page
    for name in SHIPPED:
        assert f"| `{name}` |" in page
