"""What a map may do is decided before it begins, the same in every form of an option."""

from pathlib import Path

import pytest

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.store import cache_file
from tests.support.rows.echo import Echo

# Nothing listens there: what is sent all the same fails otherwise.
SERVER = {"base_url": "http://127.0.0.1:9/v1", "api_key": "sk-x"}


class Empty(Echo):
    """A model of a class that counts as false, as a container does that holds nothing."""

    def __len__(self):
        return 0


@pytest.fixture(params=["model", "empty model", "record", "recorded empty model", "replay"])
def unkept(request):
    """An agent whose answers are not kept, and that knows a server."""
    with Agent(Echo(), record="first.jsonl") as agent:
        agent.map_sync("{{text}}", ["a"])
    given = {
        "model": {"model": Echo()},
        "empty model": {"model": Empty()},
        "record": {"model": "gpt-4o-mini", "record": "second.jsonl"},
        "recorded empty model": {"model": Empty(), "record": "second.jsonl"},
        "replay": {"replay": "first.jsonl"},
    }[request.param]
    with Agent(**given, **SERVER) as agent:
        yield agent


@pytest.mark.parametrize("option", [{"batch": True}, {"name": "mine"}], ids=["batch", "name"])
@pytest.mark.parametrize("cache", [True, False, "answers.sqlite"])
def test_what_needs_kept_answers_is_refused_where_none_are_kept(unkept, cache, option):
    (name,) = option
    with pytest.raises(FatalError, match=f"{name}=.* needs a server and the cache of answers"):
        unkept.map_sync("{{text}}", ["a"], cache=cache, **option)


def test_answers_of_a_programs_model_and_of_recordings_are_not_kept(unkept):
    assert unkept.mapping("{{text}}", ["a"], options={"cache": True})._planned.cache is None


@pytest.mark.parametrize("cache", ["answers.sqlite", Path("answers.sqlite")])
def test_a_file_for_answers_that_are_not_kept_is_refused(unkept, cache):
    with pytest.raises(FatalError, match=r"cache='answers.sqlite': .*: leave out cache=, or"):
        unkept.map_sync("{{text}}", ["b"], cache=cache)
    assert not Path(cache).exists()


@pytest.mark.parametrize("kind", [Echo, Empty])
@pytest.mark.parametrize("record", [None, "asked.jsonl"])
def test_a_programs_model_is_asked_again_whatever_the_cache(kind, record):
    model = kind()
    with Agent(model, record=record, **SERVER) as agent:
        for cache in (True, False, True):
            done = agent.map_sync("{{text}}", ["a"], cache=cache)
    assert list(done.frame["answer"]) == ["a"]
    assert model.asked["a"] == 3 and not cache_file().exists()


@pytest.mark.parametrize("cache", [".", "/", "a\0"])
def test_a_file_of_answers_that_cannot_be_used_is_one_sentence(cache):
    refused = pytest.raises(FatalError, match="cannot be used")
    with Agent("gpt-4o-mini", **SERVER) as agent, refused:
        agent.map_sync("{{text}}", ["a"], cache=cache)
