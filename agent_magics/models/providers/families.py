"""What models were made for, by family: one table, and the features by which people change it.

Columns: whether the model gives encrypted reasoning that can be sent back, which shell tool stands
in the sets of tools beside exec_command, with what it changes files, and whether it sees images.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agent_magics.protocol.config import DEFAULT_MODEL
from agent_magics.protocol.errors import FatalError

Shell: TypeAlias = Literal["shell", "shell_command", "local_shell"]
PatchForm: TypeAlias = Literal["freeform", "json", "edit_file"]


@dataclass(frozen=True, slots=True)
class Family:
    """A row of the table.

    Attributes:
        reasoning: whether encrypted reasoning may be asked for; another model refuses.
        apply_patch: as free text, as a function, or edit_file and write_file instead of it.
        reason: why the forms of its tools are these.
        view_image: whether it sees images.
    """

    reasoning: bool
    shell: Shell
    apply_patch: PatchForm
    reason: str
    view_image: bool = True


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
    (
        r"o\d",
        Family(True, "shell", "json", "custom tools began with GPT-5; refused before"),
    ),
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
    "apply_patch": ("freeform", "json", "edit_file"),
    "view_image": YES_OR_NO,
    "reasoning_summary": ("auto", "concise", "detailed"),
    "mcp_sampling": YES_OR_NO,
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
        apply_patch: "freeform" where plain text may be asked for, "json" where only functions,
            "edit_file" where that and write_file stand in a set in its place.
        view_image: whether that tool stands in the sets.
        web_search: whether the provider's own web search is offered.
        external_web_access: False keeps that search to what the provider has stored; None leaves
            it to the provider.
    """

    shell: Shell
    apply_patch: PatchForm
    view_image: bool = True
    web_search: bool = False
    external_web_access: bool | None = None


def tools_config(model: str, features: Mapping[str, Any]) -> ToolsConfig:
    """Return the forms of tools for `model`, where `features` says nothing else."""
    family = family_of(model)
    return ToolsConfig(
        features.get("shell", family.shell),
        features.get("apply_patch", family.apply_patch),
        features.get("view_image", family.view_image),
        features.get("web_search", False),
        features.get("external_web_access"),
    )


DEFAULT_FORMS = tools_config(DEFAULT_MODEL, {})
