"""How the bytes of a file are to be read: what it says itself, else UTF-8, else a told guess.

Nothing is guessed in silence: what is no text in the encoding is counted and shown byte by byte.
"""

import codecs
import re
from dataclasses import dataclass

from agent_magics.protocol.errors import RespondToModel

SNIFFED_BYTES = 8 * 1024
_TOLERATED_LOSS = 0.3  # share of undecodable bytes at the start that text in Latin-1 stays below
_TOLERATED_BYTES = 16
# UTF-32 first: its mark begins as that of UTF-16 does.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESS = "cp1252"  # a superset of what Latin-1 prints: most old text of Western Europe
LOST_BYTE = re.compile("[\udc80-\udcff]")  # how `surrogateescape` keeps an undecodable byte
_KINDS = (
    (b"\x1f\x8b", "gzip data; decompress it first, such as with zcat or Python's gzip"),
    (b"BZh", "bzip2 data; decompress it first, such as with bzcat or Python's bz2"),
    (b"\xfd7zXZ\0", "xz data; decompress it first, such as with xzcat or Python's lzma"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data; decompress it first, such as with zstdcat"),
    (b"PK\x03\x04", "a ZIP archive, or a format built on it such as XLSX, DOCX or NPZ"),
    (b"PAR1", "a Parquet file"),
    (b"\x89PNG", "a PNG image; use view_image"),
    (b"\xff\xd8\xff", "a JPEG image; use view_image"),
    (b"GIF8", "a GIF image; use view_image"),
    (b"%PDF", "a PDF"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\x89HDF", "an HDF5 file"),
    (b"\x93NUMPY", "a NumPy array; numpy.load reads it"),
    (b"ARROW1", "an Arrow (Feather) file"),
    (b"\x7fELF", "a compiled program"),
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the bytes of a text file are to be read.

    Attributes:
        name: the codec's name, without the byte order mark.
        mark: bytes of the byte order mark at the start.
        guessed: nothing in the file says that this is its encoding.
    """

    name: str
    mark: int = 0
    guessed: bool = False

    @property
    def width(self) -> int:
        """Bytes that a line break takes."""
        return {"utf-16": 2, "utf-32": 4}.get(self.name[:6], 1)

    @property
    def errors(self) -> str:
        """How wrong bytes are kept; UTF-16 and UTF-32 can only mark them."""
        return "surrogateescape" if self.width == 1 else "replace"


def detect_encoding(head: bytes, size: int, shown: str) -> Encoding:
    """Return how a file that starts with `head` is to be read.

    Args:
        head: its first `SNIFFED_BYTES`, or all of it.
        size: its bytes in all.
        shown: how messages name it.

    Raises:
        RespondToModel: it is no text.
    """
    for mark, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return Encoding(name, len(mark))
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head)
    lost = len(LOST_BYTE.findall(text))
    if b"\0" in head or lost > max(_TOLERATED_LOSS * len(head), _TOLERATED_BYTES):
        raise RespondToModel(f"{shown} ({size:,} bytes) is {_kind_of(head)}.")
    wide = 0 if text.isascii() else sum(character > "\x7f" for character in text) - lost
    if lost > wide:  # a few broken characters among whole ones are damage, not another encoding
        return Encoding(_GUESS, guessed=True)
    return Encoding("utf-8")


def _kind_of(head: bytes) -> str:
    if head[257:262] == b"ustar":
        return "a tar archive; `tar -tf` lists it"
    for magic, kind in _KINDS:
        if head.startswith(magic):
            return kind
    return (
        "binary, or text in neither UTF-8 nor a marked UTF-16 or UTF-32; look at it with a program "
        "that knows its format"
    )


def show_lost(text: str) -> str:
    r"""Return `text` with each byte that could not be decoded as ``\xNN``."""
    return LOST_BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
