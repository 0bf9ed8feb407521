"""How often Python looks for garbage while rows are asked."""

import gc

import pytest

from agent_magics.rows.garbage import SELDOM, collects_seldom


@pytest.fixture(autouse=True)
def threshold():
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("before", "during"), [(700, SELDOM), (0, 0), (SELDOM + 1, SELDOM + 1), (SELDOM, SELDOM)]
)
def test_the_last_of_several_maps_puts_the_threshold_back(before, during):
    gc.set_threshold(before, 11, 12)
    with collects_seldom():
        with collects_seldom():
            assert gc.get_threshold() == (during, 11, 12)
        assert gc.get_threshold() == (during, 11, 12)
    assert gc.get_threshold() == (before, 11, 12)


def test_a_threshold_that_is_set_meanwhile_stays():
    gc.set_threshold(700, 10, 10)
    with collects_seldom():
        gc.set_threshold(500, 10, 10)
    assert gc.get_threshold() == (500, 10, 10)


def test_the_threshold_is_put_back_after_an_error():
    gc.set_threshold(700, 10, 10)
    with pytest.raises(KeyError), collects_seldom():
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)
