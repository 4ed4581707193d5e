"""The merge of files, environment and flags; and what is refused with which sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from kbtui import config, paths
from kbtui.config import Settings, load_settings
from kbtui.errors import ConfigError

DOCUMENTED = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_user_file(text: str) -> Path:
    file = paths.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_defaults_without_any_source() -> None:
    settings, origins = load_settings()
    assert settings == Settings()
    assert set(origins.values()) == {"default"}


def test_later_sources_win_and_origins_tell(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_user_file("iterations = 1\nseed = 1\ntarget = 'sm_80'\nmodel = 'a/b'\n")
    (project / "kbtui.toml").write_text("iterations = 2\nseed = 2\ntarget = 'sm_89'\n")
    monkeypatch.setenv("KBTUI_ITERATIONS", "3")
    monkeypatch.setenv("KBTUI_SEED", "3")
    settings, origins = load_settings({"iterations": 4, "device": None})
    assert (settings.iterations, settings.seed, settings.target, settings.model) == (4, 3, "sm_89", "a/b")
    assert origins["iterations"] == "--iterations"
    assert origins["seed"] == "KBTUI_SEED"
    assert origins["target"] == "kbtui.toml"
    assert origins["model"] == str(file)
    assert origins["device"] == "default"


def test_unknown_key_names_file_and_near_miss() -> None:
    file = write_user_file("iteratons = 3\n")
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert str(raised.value) == f"{file}: no setting is called iteratons; did you mean iterations?"


def test_unknown_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBTUI_POLICI", "paper")
    with pytest.raises(ConfigError, match="KBTUI_POLICI is no setting; did you mean KBTUI_POLICY"):
        load_settings()


def test_variables_that_are_no_settings_are_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBTUI_DEBUG", "1")
    assert load_settings()[0] == Settings()


def test_secret_in_a_file_is_refused_without_its_value() -> None:
    write_user_file("openai_api_key = 'sk-0123456789abcdef0123'\n")
    with pytest.raises(ConfigError, match="environment only") as raised:
        load_settings()
    assert "0123456789" not in str(raised.value)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("iterations = 'many'", "a whole number of 1 or more"),
        ("iterations = 0", "a whole number of 1 or more"),
        ("iterations = true", "a whole number of 1 or more"),
        ("iterations = 2.5", "a whole number of 1 or more"),
        ("seed = -1", "a whole number of 0 or more"),
        ("iterations = 1000000001", "a whole number of 1 or more, at most 1,000,000,000"),
        ("patience = 1000000001", "a whole number of 0 or more, at most 1,000,000,000"),
        ("seed = '9223372036854775808'", "a whole number of 0 or more, at most 9,223,372,036,854,775,807"),
        ("budget_usd = -0.5", "a number of 0 or more"),
        ("budget_usd = nan", "a number of 0 or more"),
        ("budget_usd = inf", "a number of 0 or more"),
        ("objective = 'best'", "one of geomean, total, worst"),
        ("objective = ['worst']", "one of geomean, total, worst"),
        ("policy = 3", "a text"),
        ("mouse = 'perhaps'", "true or false"),
        ("policy_parameters = 'c'", "name=value pairs"),
        ("[policy_parameters]\nc = [1]", "name=value pairs"),
    ],
)
def test_wrong_value_names_file_key_and_what_is_wanted(line: str, wanted: str) -> None:
    file = write_user_file(line)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert str(file) in str(raised.value)
    assert wanted in str(raised.value)


@pytest.mark.parametrize("content", [b"iterations =", b"model = '\xff'"])
def test_broken_file_is_named(project: Path, content: bytes) -> None:
    (project / "kbtui.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"kbtui\.toml is not valid TOML"):
        load_settings()


def test_unreadable_file_is_named(project: Path) -> None:
    (project / "kbtui.toml").mkdir()
    with pytest.raises(ConfigError, match=r"kbtui\.toml cannot be read: Is a directory"):
        load_settings()


def test_environment_spells_every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "KBTUI_BUDGET_USD": "2.5",
        "KBTUI_MOUSE": "no",
        "KBTUI_POLICY_PARAMETERS": "c=0.5, theta=80, name=x",
    }.items():
        monkeypatch.setenv(name, value)
    settings, _ = load_settings()
    assert settings.budget_usd == 2.5
    assert settings.mouse is False
    assert settings.policy_parameters == {"c": 0.5, "theta": 80, "name": "x"}


def test_flag_of_a_wrong_value_is_named_as_typed() -> None:
    with pytest.raises(ConfigError, match=r"--budget-usd must be a number of 0 or more, not -1\.0"):
        load_settings({"budget_usd": -1.0})


def test_interpreter_defaults_to_ours() -> None:
    import sys

    assert Settings().interpreter == sys.executable
    assert Settings(python="/x/python").interpreter == "/x/python"


def test_every_setting_has_a_reader() -> None:
    assert set(config._READERS) == set(Settings.__struct_fields__)


def test_documentation_lists_every_setting_with_its_default() -> None:
    rows = [line.split("|") for line in DOCUMENTED.read_text().splitlines() if line.startswith("| `")]
    documented = {row[1].strip(" `"): row[2].strip(" `") for row in rows}
    defaults = Settings()
    assert set(documented) == set(Settings.__struct_fields__)
    for key, shown in documented.items():
        assert tomllib.loads(f"value = {shown}")["value"] == getattr(defaults, key), key
