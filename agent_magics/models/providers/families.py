"""Looks up the features of model families in one table.

Columns: whether the model returns encrypted reasoning that can be sent back, which shell tool it
gets besides exec_command, which tool edits files, and whether it accepts images.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from agent_magics.protocol.config import DEFAULT_MODEL
from agent_magics.protocol.errors import FatalError
from agent_magics.text.brief import brief, meant

Shell: TypeAlias = Literal["shell", "shell_command", "local_shell"]
PatchForm: TypeAlias = Literal["freeform", "json", "edit_file"]


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the table.

    Attributes:
        reasoning: whether encrypted reasoning may be requested; other models refuse the request.
        shell: the shell tool that fits its training.
        apply_patch: "freeform" text, "json" function, or "edit_file" with write_file instead.
        reason: the reason for these tools.
        view_image: whether it accepts images.
    """

    reasoning: bool
    shell: Shell
    apply_patch: PatchForm
    reason: str
    view_image: bool = True


# The first pattern that matches the beginning of the model's name (after its last "/") applies.
FAMILIES: tuple[tuple[str, Family], ...] = (
    (
        "codex-mini",
        Family(
            True, "local_shell", "json", "trained on the native shell call, before custom tools"
        ),
    ),
    (
        "gpt-oss",
        Family(
            False,
            "shell",
            "json",
            "knows patches, its servers only functions; sees nothing",
            view_image=False,
        ),
    ),
    (
        "gpt-5-chat",
        Family(False, "shell", "json", "a chat model without reasoning and custom tools"),
    ),
    (
        r"gpt-[5-9]|gpt-\d\d|codex-|daybreak",
        Family(True, "shell", "freeform", "trained on patches as free text, as Codex sends them"),
    ),
    (
        "o[13]-mini",
        Family(
            True,
            "shell",
            "json",
            "custom tools began with GPT-5; the small ones see nothing",
            view_image=False,
        ),
    ),
    (r"o\d", Family(True, "shell", "json", "custom tools began with GPT-5; refused before")),
    (
        "gpt-|chatgpt",
        Family(False, "shell", "json", "custom tools began with GPT-5; refused before"),
    ),
    (
        "claude|gemini",
        Family(False, "shell_command", "edit_file", "trained to replace a text; they see images"),
    ),
)
OTHERS = Family(
    False,
    "shell_command",
    "edit_file",
    "most were trained on a command line and to replace a text; many see nothing",
    view_image=False,
)

_FAMILIES = tuple((re.compile(pattern), family) for pattern, family in FAMILIES)


@lru_cache(maxsize=64)  # looked up before every run
def family_of(model: str) -> Family:
    """Return the family of the model called `model`."""
    name = model.rpartition("/")[2].lower()
    return next((family for pattern, family in _FAMILIES if pattern.match(name)), OTHERS)


# -- features ------------------------------------------------------------------------------------

YES_OR_NO = (True, False)

# Feature -> its possible values.
FEATURES: dict[str, tuple[Any, ...]] = {
    "web_search": YES_OR_NO,
    "external_web_access": YES_OR_NO,
    "shell": ("shell", "shell_command", "local_shell"),
    "apply_patch": ("freeform", "json", "edit_file"),
    "view_image": YES_OR_NO,
    "reasoning_summary": ("auto", "concise", "detailed"),
    "mcp_sampling": YES_OR_NO,
    "service_tier": ("auto", "default", "flex", "scale", "priority"),
}


_LONGEST_SHOWN = 300  # characters of a value


def check_features(features: object) -> dict[str, Any]:
    """Validate `features` and return them as a dict.

    Raises:
        FatalError: a feature is unknown, or its value is not possible.
    """
    if not isinstance(features, Mapping):
        shown = brief(repr(features), _LONGEST_SHOWN)
        raise FatalError(f"features={shown} must be a mapping such as {{'web_search': True}}.")
    for name, value in features.items():
        if name not in FEATURES:
            shown = brief(repr(name), _LONGEST_SHOWN)
            raise FatalError(f"features has no {shown}; {meant(name, FEATURES)}")
        choices = FEATURES[name]
        # The types too, since 1 == True.
        if not any(type(value) is type(each) and value == each for each in choices):
            known, shown = " | ".join(map(str, choices)), brief(repr(value), _LONGEST_SHOWN)
            raise FatalError(f"features[{name!r}]={shown} is not one of: {known}.")
    return dict(features)


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """Variants of the tools that a run offers.

    Attributes:
        shell: the tool that "shell" in a set of tools stands for.
        apply_patch: "freeform" where plain text can be requested, "json" where only functions can,
            "edit_file" where that and write_file replace it.
        view_image: whether view_image is offered.
        web_search: whether the provider's built-in web search is offered.
        external_web_access: False restricts that search to the provider's cache; None leaves it to
            the provider.
    """

    shell: Shell
    apply_patch: PatchForm
    view_image: bool = True
    web_search: bool = False
    external_web_access: bool | None = None


def tools_config(model: str, features: Mapping[str, Any]) -> ToolsConfig:
    """Return the variants of tools for `model`; `features` overrides the family's."""
    family = family_of(model)
    return ToolsConfig(
        features.get("shell", family.shell),
        features.get("apply_patch", family.apply_patch),
        features.get("view_image", family.view_image),
        features.get("web_search", False),
        features.get("external_web_access"),
    )


DEFAULT_FORMS = tools_config(DEFAULT_MODEL, {})
