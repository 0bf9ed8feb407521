"""Letters of other alphabets do not pass for Latin ones in what a person judges."""

# ruff: noqa: RUF001 - these letters are its subject

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.mcp.elicitation.forms import UnusableForm, form_fields
from agent_magics.render.visible import show_invisible, show_shortened
from agent_magics.text.look_alikes import _LOOK_ALIKES, as_latin, mark_look_alikes
from agent_magics.text.secrets import asks_for_secret

OWN_OF = {like: chr(own) for own, like in _LOOK_ALIKES.items()}
WIDE_A, BOLD_A = 0xFF21, 0x1D400  # letters that only their shape tells from plain ones
WORDS = ("paypal", "password", "approve", "github", "secret", "shell", "rm", "Config", "sudo")


def written(character):
    return f"{character}⟨U+{ord(character):04X}⟩"


def variants(letter):
    """Yield every letter that is known to look like a plain one."""
    yield from (chr(own) for own, like in _LOOK_ALIKES.items() if like == letter)
    if letter.isupper():
        yield from (chr(start + ord(letter) - ord("A")) for start in (WIDE_A, BOLD_A))


@pytest.mark.parametrize("word", WORDS)
def test_each_letter_that_is_replaced_in_a_word_is_marked(word):
    for at, letter in enumerate(word):
        for own in variants(letter):
            changed = word[:at] + own + word[at + 1 :]
            assert show_invisible(changed) == word[:at] + written(own) + word[at + 1 :]
            assert as_latin(changed) == word


@given(st.lists(st.sampled_from(sorted(OWN_OF)), min_size=2, max_size=12))
def test_a_word_of_look_alikes_alone_is_marked(letters):
    word = "".join(OWN_OF[letter] for letter in letters)
    assert show_shortened(f"go to {word}!", 1000) == f"go to {''.join(map(written, word))}!"


def test_a_letter_before_its_own_code_is_marked_already():
    assert mark_look_alikes("pа⟨U+0430⟩y") == "pа⟨U+0430⟩y"
    assert mark_look_alikes("pа⟨U+0441⟩y") == "pа⟨U+0430⟩⟨U+0441⟩y"


@given(st.text(st.characters(codec="utf-8")))
def test_nothing_else_of_a_text_changes(text):
    shown = mark_look_alikes(text)
    for character in set(text):
        shown = shown.replace(written(character), character)
    assert shown == text


@pytest.mark.parametrize(
    "text",
    [
        *("Привет, как дела? Все рос. Он сказал: ура", "το όνομα του", "Հայերեն օր", "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ"),
        *("Δt, μm, σ_x, λ2, Ωm, θ", "α = 0.05, ν, ρ", "Tシャツ 日本語 한국어", "naïve café Straße"),
        *("Müller ığdır kadın", "x² ½ №1 ℃ ﬁne", "עברית ok", "Word по-русски", "я, e-mail"),
    ],
)
def test_ordinary_text_stays(text):
    assert mark_look_alikes(text) == text


SECRETS = ("password", "API key", "access token", "client secret", "passphrase", "credentials")


@pytest.mark.parametrize("label", SECRETS)
def test_a_field_that_asks_for_a_secret_is_known_however_its_letters_are_written(label):
    for letter in {letter for letter in label if letter.isalpha()}:
        for own in (*variants(letter), letter + "\u0301", letter + "\u200d", letter + "\u034f"):
            changed = label.replace(letter, own)
            assert asks_for_secret(changed), [unicodedata.name(c, "") for c in changed]
            with pytest.raises(UnusableForm, match="asks for a secret"):
                form_fields({"properties": {"x": {"type": "string", "title": changed}}})
