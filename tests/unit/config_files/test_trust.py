"""A digest that a person gives is long enough for what it names to be what they have seen."""

import pytest

from agent_magics import FatalError
from agent_magics.kernel.commands.project.overview import _Section, _trust
from agent_magics.project import digests
from agent_magics.project.memory import note_folders

PARTS = [_Section("Rules", "", "approvals", "0" * 64, pytest.fail)]
WAYS = {
    "a part": lambda digest, folder: _trust(PARTS, digest),
    "a prompt": lambda digest, folder: digests.trust("prompts", [], digest),
    "notes": lambda digest, folder: note_folders(folder)["project"].trust(digest),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("digest", ["", "0", "0" * 11])
def test_a_short_digest_trusts_nothing(way, digest, tmp_path):
    with pytest.raises(FatalError, match=f"'{digest}' is too short for a digest: give all 12"):
        WAYS[way](digest, tmp_path)


def test_a_digest_of_nothing_that_waits_says_where_to_look():
    words = "none of the prompts that wait for trust .* look again with %agent prompts trust"
    with pytest.raises(FatalError, match=words):
        digests.trust("prompts", [], "1" * 12)
