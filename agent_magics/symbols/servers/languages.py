"""Tells the language of a file from its name, as language servers call it."""

from pathlib import Path

# Ending -> the language of the server, and the protocol's identifier for the text.
_ENDINGS = {
    **dict.fromkeys((".py", ".pyi", ".pyw"), ("python", "python")),
    **dict.fromkeys((".ts", ".mts", ".cts"), ("typescript", "typescript")),
    ".tsx": ("typescript", "typescriptreact"),
    **dict.fromkeys((".js", ".mjs", ".cjs"), ("typescript", "javascript")),
    ".jsx": ("typescript", "javascriptreact"),
    ".rs": ("rust", "rust"),
    ".go": ("go", "go"),
    **dict.fromkeys((".c", ".h"), ("c", "c")),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp"), ("cpp", "cpp")),
    ".java": ("java", "java"),
    **dict.fromkeys((".r", ".R"), ("r", "r")),
    ".jl": ("julia", "julia"),
    ".rb": ("ruby", "ruby"),
    **dict.fromkeys((".sh", ".bash"), ("bash", "shellscript")),
    ".ipynb": ("", "python"),  # a server gets the code of its cells
}
# Files that servers read besides: their change can change every answer.
_SETTINGS = frozenset(
    {
        *("pyproject.toml", "pyrightconfig.json", "setup.cfg", "package.json", "tsconfig.json"),
        *("jsconfig.json", "Cargo.toml", "go.mod", "compile_commands.json"),
    }
)


def language_of(path: Path) -> str:
    """Return the language of a file, such as "python"; "" where it is unknown."""
    return _ENDINGS.get(path.suffix, ("", ""))[0]


def endings_of(language: str) -> list[str]:
    """Return the endings of a language's files."""
    return [ending for ending, (each, _) in _ENDINGS.items() if each == language]


def language_id(path: Path) -> str:
    """Return the protocol's identifier of a file's text, such as "typescriptreact"."""
    return _ENDINGS.get(path.suffix, ("", "plaintext"))[1]


def concerns(language: str, name: str) -> bool:
    """Return whether a file of this name matters to the servers of a language."""
    ending = name[name.rfind(".") :]
    return _ENDINGS.get(ending, ("", ""))[0] == language or name in _SETTINGS
