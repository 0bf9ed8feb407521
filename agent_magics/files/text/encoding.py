"""Detects a text file's encoding: byte order mark, else UTF-8, else a guess that is reported.

Undecodable bytes are counted and shown as escapes, never dropped.
"""

import codecs
import re
from dataclasses import dataclass

from agent_magics.protocol.errors import RespondToModel

SNIFFED_BYTES = 8 * 1024
_TOLERATED_LOSS = 0.3  # share of undecodable bytes; Latin-1 text has fewer
_TOLERATED_BYTES = 16
# UTF-32 before UTF-16, whose mark is the beginning of UTF-32's.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESS = "cp1252"  # a superset of printable Latin-1: most old text of Western Europe
LOST_BYTE = re.compile("[\udc80-\udcff]")  # an undecodable byte, as `surrogateescape` decodes it
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
    """The encoding of a text file.

    Attributes:
        name: the codec's name, without the byte order mark.
        mark: length in bytes of the byte order mark at the start.
        guessed: whether nothing in the file declares this encoding.
    """

    name: str
    mark: int = 0
    guessed: bool = False

    @property
    def width(self) -> int:
        """Bytes of a line break."""
        return {"utf-16": 2, "utf-32": 4}.get(self.name[:6], 1)

    @property
    def errors(self) -> str:
        """The codec error handler; UTF-16 and UTF-32 cannot preserve invalid bytes."""
        return "surrogateescape" if self.width == 1 else "replace"


def detect_encoding(head: bytes, size: int, shown: str) -> Encoding:
    """Detect the encoding of a text file from its first bytes.

    Args:
        head: its first `SNIFFED_BYTES`, or all of it.
        size: its whole size in bytes.
        shown: its name in messages.

    Raises:
        RespondToModel: it is not text.
    """
    for mark, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            return Encoding(name, len(mark))
    text = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode(head)
    lost = len(LOST_BYTE.findall(text))
    if b"\0" in head or lost > max(_TOLERATED_LOSS * len(head), _TOLERATED_BYTES):
        raise RespondToModel(f"{shown} ({size:,} bytes) is {_kind_of(head)}.")
    wide = 0 if text.isascii() else sum(character > "\x7f" for character in text) - lost
    if lost > wide:  # with more valid than broken characters it is damaged UTF-8
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
    r"""Return `text` with each undecodable byte written as ``\xNN``."""
    return LOST_BYTE.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
