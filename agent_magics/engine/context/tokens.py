"""Counts or estimates the tokens of items that no provider has counted yet."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeAlias

from agent_magics.files.plain_files import read_plain
from agent_magics.protocol.items import (
    AssistantMessage,
    CustomToolCall,
    FunctionCall,
    InputImage,
    InputText,
    Item,
    LocalShellCall,
    Reasoning,
    ToolCallOutput,
    UserMessage,
    parts_of,
)

TextCounter: TypeAlias = Callable[[str], int]

# English and code come to about four characters a token. Counted in UTF-8, so that scripts whose
# characters are a token each come out near the truth.
BYTES_A_TOKEN = 4

# Tokens of an item's own fields: role, name, ids.
ITEM_TOKENS = 5

# OpenAI's guide "Images and vision": 85 tokens for low detail; a tiled or patched picture of the
# size that we send comes to 700 to 1,600, and one in its original size to a multiple of that.
IMAGE_TOKENS = {"low": 85, "auto": 1_200, "high": 1_200, "original": 5_000}

# tiktoken loads an encoding from its cache folder, and from the network where it is not there or
# damaged. So it is only asked for one whose file is there and whole (names, addresses and hashes
# as in its tiktoken_ext/openai_public.py).
_MOST_ENCODING = 16 << 20  # bytes
_FILES = {
    "cl100k_base": (
        "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
_SAME_FILE = {"o200k_harmony": "o200k_base"}


def guess_text(text: str) -> int:
    """Estimate the tokens of `text` from its size in UTF-8, in constant time for ASCII."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // BYTES_A_TOKEN)


def count_item(item: Item, count: TextCounter = guess_text) -> int:
    """Estimate the tokens that `item` adds to a request."""
    parts = _parts_of(item)
    return ITEM_TOKENS + sum(
        count(part) if isinstance(part, str) else IMAGE_TOKENS[part.detail] for part in parts
    )


def count_items(items: Iterable[Item]) -> int:
    """Estimate the tokens that `items` add to a request."""
    return sum(map(count_item, items))


def _parts_of(item: Item) -> Sequence[str | InputImage]:
    match item:
        case UserMessage(content=content) | ToolCallOutput(output=content):
            parts = parts_of(content)
            return [part.text if isinstance(part, InputText) else part for part in parts]
        case AssistantMessage(text=text):
            return (text,)
        case Reasoning(summary=summary, encrypted=encrypted):
            return (*summary, encrypted or "")
        case FunctionCall(name=name, arguments=text) | CustomToolCall(name=name, input=text):
            return (name, text)
        case LocalShellCall(command=command):
            return command
    return ()


@cache
def exact_counter(model: str) -> TextCounter | None:
    """Return tiktoken's counter for `model`, if tiktoken and its encoding are installed.

    Loading an encoding takes up to a second. Nothing is fetched from the network.
    """
    try:
        import tiktoken  # noqa: PLC0415 - optional, and slow to import

        name = tiktoken.encoding_name_for_model(model)
        if not _is_at_hand(_SAME_FILE.get(name, name)):
            return None
        encoding = tiktoken.get_encoding(name)
    except (ImportError, KeyError, ValueError, OSError):  # a model or file it does not know
        return None
    return lambda text: len(encoding.encode(text, disallowed_special=()))


def _is_at_hand(encoding: str) -> bool:
    address, digest = _FILES.get(encoding, ("", ""))
    folder = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if folder is None:
        folder = f"{tempfile.gettempdir()}/data-gym-cache"
    if not address or not folder:  # an empty folder name means that nothing is kept
        return False
    # tiktoken names its files so (tiktoken/load.py).
    name = hashlib.sha1(address.encode(), usedforsecurity=False).hexdigest()
    with suppress(OSError):
        return hashlib.sha256(read_plain(Path(folder, name), _MOST_ENCODING)).hexdigest() == digest
    return False
