"""The table of model families: its rows, and the features that change what it says."""

import pytest

from agent_magics.models.providers.families import (
    FAMILIES,
    OTHERS,
    check_features,
    family_of,
    tools_config,
)
from agent_magics.protocol.errors import FatalError


@pytest.mark.parametrize(
    ("model", "reasoning", "shell", "apply_patch"),
    [
        ("gpt-5.5", True, "shell", "freeform"),
        ("openai/gpt-5", True, "shell", "freeform"),
        ("gpt-6-sol", True, "shell", "freeform"),
        ("gpt-10", True, "shell", "freeform"),
        ("GPT-5.5", True, "shell", "freeform"),
        ("codex-mini-latest", True, "local_shell", "json"),
        ("gpt-5-chat-latest", False, "shell", "json"),
        ("openai/gpt-oss-120b", False, "shell", "json"),
        ("o3-mini", True, "shell", "json"),
        ("gpt-4o", False, "shell", "json"),
        ("anthropic/claude-sonnet-5", False, "shell_command", "edit_file"),
        ("ollama", False, "shell_command", "edit_file"),
        ("", False, "shell_command", "edit_file"),
    ],
)
def test_families(model, reasoning, shell, apply_patch):
    family = family_of(model)
    assert (family.reasoning, family.shell, family.apply_patch) == (reasoning, shell, apply_patch)


@pytest.mark.parametrize(
    ("model", "sees"),
    [
        *(("gpt-5.5", True), ("o3", True), ("o3-mini", False), ("gpt-oss-20b", False)),
        *(("models/gemini-3-pro", True), ("llama3.3", False)),
    ],
)
def test_who_sees_images(model, sees):
    assert tools_config(model, {}).view_image == sees
    assert tools_config(model, {"view_image": not sees}).view_image != sees


def test_every_row_has_its_reason():
    assert all(family.reason for family in (*dict(FAMILIES).values(), OTHERS))


def test_features_go_before_the_table():
    config = tools_config("gpt-5.5", {"shell": "shell_command", "apply_patch": "json"})
    assert (config.shell, config.apply_patch) == ("shell_command", "json")
    assert (config.web_search, config.external_web_access) == (False, None)
    config = tools_config("gpt-4o", {"web_search": True, "external_web_access": False})
    assert (config.web_search, config.external_web_access) == (True, False)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"wings": True}, "features has no 'wings'; there are: web_search, "),
        ({"web_search": "yes"}, "features['web_search']='yes' is not one of: True | False"),
        ({"web_search": 1}, "features['web_search']=1 is not one of: True | False"),
        ({"shell": True}, "features['shell']=True is not one of: shell | shell_command | local"),
        (["web_search"], "must be a mapping"),
        (None, "must be a mapping"),
    ],
)
def test_a_wrong_feature_is_told_in_one_sentence(features, says):
    with pytest.raises(FatalError) as refusal:
        check_features(features)
    assert says in str(refusal.value)


def test_features_are_kept_as_they_are():
    features = {"web_search": True, "service_tier": "flex", "reasoning_summary": "auto"}
    assert check_features(features) == features
