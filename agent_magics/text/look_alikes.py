"""Finds letters of other alphabets that look like Latin ones, in text that a person judges."""

# ruff: noqa: RUF001, RUF002 - these letters are its subject

import re
import unicodedata

# Pairs: letters, and the Latin letters that they look like.
_PAIRS = (
    ("асеорхуіјѕһԁԛԝѵӏкмтнвпг", "aceopxyijshdqwvlkmthbnr"),  # Cyrillic
    ("АВЕКМНОРСТХУІЈЅԚԜѴӀ", "ABEKMHOPCTXYIJSQWVI"),
    ("αεικνορτυχγηϲϳ", "aeiknoptuxyncj"),  # Greek
    ("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧϹͿ", "ABEZHIKMNOPTYXCJ"),
    ("օսոհցզյ", "ounhgqj"),  # Armenian
    ("ᎪᏴᏟᎠᎬᎻᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳᎩᏃ", "ABCDEHJKLMPRSTVWYZ"),  # Cherokee
    ("ꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ", "ABCDEFGHIJKLMNOPRSTUVWXYZ"),  # Lisu
    ("ɑɡⲟⲣⲥ", "agopc"),  # of phonetics, Coptic
)
_LOOK_ALIKES = {ord(own): like for pair in _PAIRS for own, like in zip(*pair, strict=True)}
_LATIN_OF = {**_LOOK_ALIKES, ord("ı"): "i"}  # which Turkish words have
_MAY_DECEIVE = re.compile(r"[^\W\d_a-zA-Z]")
_WORD = re.compile(r"[^\W\d_]+")
# Alphabets whose letters nobody mixes with Latin ones in a word. Greek ones stand in names of
# variables (Δt, μm), where only those that look alike matter.
_SHAPED = "SHAPED"
_APART = ("CYRILLIC", "ARMENIAN", "CHEROKEE", "LISU", "COPTIC")


def as_latin(text: str) -> str:
    """Return `text` with each letter replaced by the plain Latin one that it looks like."""
    apart = unicodedata.normalize("NFKD", text.translate(_LATIN_OF))
    plain = "".join(c for c in apart if unicodedata.category(c) not in ("Cf", "Mn", "Me"))
    return plain.translate(_LATIN_OF)


def mark_look_alikes(text: str) -> str:
    """Put its code behind each letter that may pass for a Latin one.

    Args:
        text: text that a person is about to judge.

    Returns:
        The text; a letter is marked, such as ``а⟨U+0430⟩``, in a word that has Latin letters too,
        and in a word of nothing but look-alikes where the text has no other letter of theirs. One
        that has its code behind it already stays.
    """
    if not _MAY_DECEIVE.search(text):  # nearly always
        return text
    clear = {_alphabet(c) for c in set(text) if c.isalpha() and not _is_look_alike(c)}
    return _WORD.sub(lambda found: _marked(found, clear), text)


def _marked(found: re.Match[str], clear: set[str]) -> str:
    word = found[0]
    if word.isascii():
        return word
    alphabets = set(map(_alphabet, word))
    if "LATIN" not in alphabets:
        is_plain = len(word) < 2 or not all(map(_is_look_alike, word))
        if is_plain or alphabets & clear:
            return word
    marked = "".join(c + code_of(c) if _may_pass(c) else c for c in word)
    code = code_of(word[-1])
    return marked.removesuffix(code) if found.string.startswith(code, found.end()) else marked


def code_of(character: str) -> str:
    """Return the code of a character as it is written out, such as ⟨U+202E⟩."""
    return f"⟨U+{ord(character):04X}⟩"


def _may_pass(character: str) -> bool:
    return _is_look_alike(character) or _alphabet(character) in _APART


def _is_look_alike(character: str) -> bool:
    """Tell whether a letter looks like a plain Latin one."""
    return ord(character) in _LOOK_ALIKES or _alphabet(character) == _SHAPED


def _alphabet(character: str) -> str:
    """Return the first word of a letter's name, or `_SHAPED` for full-width, bold and such ones."""
    named = unicodedata.name(character, "").partition(" ")[0]
    plain = unicodedata.normalize("NFKC", character)
    return _SHAPED if named != "LATIN" and plain.isascii() and plain.isalpha() else named
