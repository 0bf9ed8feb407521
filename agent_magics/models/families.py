"""What models were made for, by family: one table, and the features by which people change it.

Columns: whether the model gives encrypted reasoning that can be sent back, which shell tool stands
in the sets of tools beside exec_command, and in which form freeform tools such as apply_patch are
offered. `view_image` and `edit_file` get columns when there are such tools.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agent_magics.protocol.errors import FatalError

Shell: TypeAlias = Literal["shell", "shell_command", "local_shell"]
PatchForm: TypeAlias = Literal["freeform", "json"]


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the table.

    Attributes:
        reasoning: whether encrypted reasoning may be asked for; another model refuses.
        reason: why the forms of its tools are these.
    """

    reasoning: bool
    shell: Shell
    apply_patch: PatchForm
    reason: str


# The first pattern that the model's name (without what stands before its last "/") begins with.
FAMILIES: tuple[tuple[str, Family], ...] = (
    (
        "codex-mini",
        Family(
            True, "local_shell", "json", "trained on the native shell call, before custom tools"
        ),
    ),
    (
        "gpt-oss",
        Family(False, "shell", "json", "knows patches, but its servers know only functions"),
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
        r"o\d",
        Family(True, "shell", "json", "custom tools began with GPT-5; refused before"),
    ),
    (
        "gpt-|chatgpt",
        Family(False, "shell", "json", "custom tools began with GPT-5; refused before"),
    ),
)
OTHERS = Family(False, "shell_command", "json", "most were trained on a command line and JSON")

_FAMILIES = tuple((re.compile(pattern), family) for pattern, family in FAMILIES)


def family_of(model: str) -> Family:
    """Return the family of the model of that name."""
    name = model.rpartition("/")[2].lower()
    return next((family for pattern, family in _FAMILIES if pattern.match(name)), OTHERS)


# -- features ------------------------------------------------------------------------------------

YES_OR_NO = (True, False)

# Feature -> what it may be.
FEATURES: dict[str, tuple[Any, ...]] = {
    "web_search": YES_OR_NO,
    "external_web_access": YES_OR_NO,
    "shell": ("shell", "shell_command", "local_shell"),
    "apply_patch": ("freeform", "json"),
    "reasoning_summary": ("auto", "concise", "detailed"),
    "service_tier": ("auto", "default", "flex", "scale", "priority"),
}


def check_features(features: Any) -> dict[str, Any]:
    """Return `features` as a run carries them.

    Raises:
        FatalError: there is no such feature, or it cannot be that.
    """
    if not isinstance(features, Mapping):
        raise FatalError(f"features={features!r} must be a mapping such as {{'web_search': True}}.")
    for name, value in features.items():
        if name not in FEATURES:
            raise FatalError(f"features has no {name!r}; there are: {', '.join(FEATURES)}.")
        choices = FEATURES[name]
        # (1 == True, but is not what was meant.)
        if not any(type(value) is type(each) and value == each for each in choices):
            shown = " | ".join(map(str, choices))
            raise FatalError(f"features[{name!r}]={value!r} is not one of: {shown}.")
    return dict(features)


@dataclass(frozen=True, slots=True)
class ToolsConfig:
    """In which forms the tools of a run are offered.

    Attributes:
        shell: which tool "shell" in a set of tools stands for.
        apply_patch: "freeform" where plain text may be asked for, "json" where only functions.
        web_search: whether the provider's own web search is offered.
        external_web_access: False keeps that search to what the provider has stored; None leaves
            it to the provider.
    """

    shell: Shell
    apply_patch: PatchForm
    web_search: bool = False
    external_web_access: bool | None = None


def tools_config(model: str, features: Mapping[str, Any]) -> ToolsConfig:
    """Return the forms of tools for `model`, where `features` says nothing else."""
    family = family_of(model)
    return ToolsConfig(
        features.get("shell", family.shell),
        features.get("apply_patch", family.apply_patch),
        features.get("web_search", False),
        features.get("external_web_access"),
    )
