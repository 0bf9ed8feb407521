"""Makes the traits of `AgentMagics` and the options of `%%agent` from the table of settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from IPython.core.magic_arguments import argument
from traitlets import Bool, Dict, Enum, Float, HasTraits, Int, List, TraitType, Unicode, Union
from traitlets.traitlets import MetaHasTraits

from agent_magics.protocol.config import Where
from agent_magics.settings.table import DEFAULTS, SETTINGS, base_of, choices_of, settings_in

_TEXTS = (str, Path, str | None, str | Path | None)
_NUMBERS: Mapping[Any, tuple[type[TraitType[Any, Any]], type]] = {
    int: (Int, int),
    int | None: (Int, int),
    float | None: (Float, float),
}


def make_trait(name: str) -> TraitType[Any, Any]:
    """Return the trait of a setting; its value is checked when a cell uses it."""
    base, setting = base_of(name), SETTINGS[name]
    default = getattr(DEFAULTS, name) if setting.in_notebook is None else setting.in_notebook
    if choices_of(name):
        trait: TraitType[Any, Any] = Enum(choices_of(name), str(default), help=setting.help)
    elif base is bool:
        trait = Bool(default, help=setting.help)
    elif base in _NUMBERS:
        kind, _ = _NUMBERS[base]
        trait = kind(default, min=setting.least, allow_none=default is None, help=setting.help)
    elif base in _TEXTS:
        trait = Unicode("" if default is None else str(default), help=setting.help)
    elif name == "tools":
        trait = Union([List(Unicode()), Unicode()], default_value=list(default), help=setting.help)
    elif isinstance(default, tuple):
        trait = List(list(default), help=setting.help)
    else:
        trait = Dict(help=setting.help)
    return trait.tag(config=True)


# A class that is made from the table, and so has no type.
SettingTraits: Any = MetaHasTraits(
    "SettingTraits", (HasTraits,), {name: make_trait(name) for name in settings_in(Where.NOTEBOOK)}
)


def add_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option of `%%agent` for each setting that a cell can give (a decorator)."""
    for name, setting in reversed(settings_in(Where.CELL).items()):
        flags = setting.option.split() or [f"--{name.replace('_', '-')}"]
        function = argument(*flags, **_option(name))(function)
    return function


def _option(name: str) -> dict[str, Any]:
    setting = SETTINGS[name]
    option: dict[str, Any] = {"help": setting.help.replace("%", "%%")}
    if setting.metavar is not None:
        option["metavar"] = setting.metavar
    if choices_of(name):
        option["choices"] = choices_of(name)
    elif base_of(name) in _NUMBERS:
        option["type"] = _NUMBERS[base_of(name)][1]
    elif name == "tools":
        option["nargs"] = "+"
    return option


def given_in(magics: Any) -> dict[str, Any]:
    """Return the settings that were set in a notebook: by `%config`, a configuration file, or code.

    Args:
        magics: the object with the traits.
    """
    named = magics.config.get(type(magics).__name__, {})
    traits = magics.traits(config=True)
    found = {}
    for name, trait in traits.items():
        value = getattr(magics, name)
        if name in named or value != trait.default():
            found[name] = None if value == "" and getattr(DEFAULTS, name) is None else value
    return found
