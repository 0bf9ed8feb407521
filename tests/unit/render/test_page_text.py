"""What a person judges is shown in the page as the kernel shows it: hidden signs, look-alikes."""

import json
import subprocess
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.render.visible import show_invisible
from agent_magics.text.look_alikes import _LOOK_ALIKES
from tests.support.pages.readers import MODULES

PLAIN = MODULES.with_name("lib") / "text/plain.js"
# Shows each line of JSON, a list of texts, as the page does; null for one with a character that is
# newer than this node.
PROGRAM = f"""
import {{ createInterface }} from 'node:readline';
import {{ showInvisible }} from {json.dumps(PLAIN.as_uri())};
for await (const line of createInterface({{ input: process.stdin }}))
  console.log(JSON.stringify(JSON.parse(line).map(
    text => /\\p{{Cn}}/u.test(text) ? null : showInvisible(text)
  )));
"""
# All that Python's tables know, but of the large blocks, each letter of which is like the next.
KNOWN = [
    chr(code)
    for code in (
        *range(0x4E00),
        *range(0xA000, 0xAC00),
        *range(0xD7A4, 0x13000),
        *range(0x1D000, 0x1FA00),
    )
    if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")
] + [chr(code) for code in (0x4E00, 0xAC00, 0x13000, 0x20000, 0xE000, 0xE0020, 0xE0100, 0x10FFFD)]
LETTERS = st.sampled_from(
    [
        *map(chr, _LOOK_ALIKES),
        *"ry\u0416\u03c9\uff52\U0001d429\xaa\u207f\ufb01\uff41\u3131",
        *"abcXYZ \u0301\u0323\u20dd\u0903\u00a0\u200b.,-_1",
    ]
)


@pytest.fixture(scope="module")
def page():
    command = ["node", "--input-type=module", "-e", PROGRAM]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as node:

        def shown(texts):
            node.stdin.write(json.dumps(texts) + "\n")
            node.stdin.flush()
            return json.loads(node.stdout.readline())

        yield shown
        node.stdin.close()


pytestmark = pytest.mark.needs("program node", "labextension")


@pytest.mark.soak
@pytest.mark.parametrize("form", ["{}", "a{}"])
def test_every_character_is_shown_as_in_the_kernel(page, form):
    texts = [form.format(c) for c in KNOWN]
    pairs = [(t, shown) for t, shown in zip(texts, page(texts), strict=True) if shown is not None]
    assert len(pairs) > 0.95 * len(texts)
    differ = [text for text, shown in pairs if shown != show_invisible(text)]
    assert [" ".join(f"{ord(c):04X}" for c in text) for text in differ] == []


def test_marks_that_would_reach_a_button_are_written_out(page):
    marks = "\u0323\u0331" * 40
    shown = show_invisible(f"mkdir Z{marks}")
    assert shown == f"mkdir Z{marks[:4]}" + "⟨U+0323⟩⟨U+0331⟩" * 38
    assert page([f"mkdir Z{marks}"]) == [shown]
    assert show_invisible("Việt ทั้งที่ בְּרֵאשִׁ֖ית") == "Việt ทั้งที่ בְּרֵאשִׁ֖ית"


@settings(max_examples=300)
@given(st.lists(st.text(LETTERS, max_size=30), max_size=30))
def test_every_text_is_shown_as_in_the_kernel(page, texts):
    shown = [show_invisible(text) for text in texts]
    assert page(texts) == shown
    # Some of it the kernel has marked already.
    assert page(shown) == [show_invisible(text) for text in shown] == shown
