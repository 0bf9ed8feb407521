"""Finds the symbols of other languages with tree-sitter's grammars, where those are installed."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from agent_magics.symbols.provider import Symbol
from agent_magics.symbols.text import SourceText, one_line

# Ending -> (module of the grammar's package, its function); the packages are of one kind.
GRAMMARS = {
    ".py": ("tree_sitter_python", "language"),
    ".pyi": ("tree_sitter_python", "language"),
    ".js": ("tree_sitter_javascript", "language"),
    ".jsx": ("tree_sitter_javascript", "language"),
    ".mjs": ("tree_sitter_javascript", "language"),
    ".cjs": ("tree_sitter_javascript", "language"),
    ".ts": ("tree_sitter_typescript", "language_typescript"),
    ".mts": ("tree_sitter_typescript", "language_typescript"),
    ".tsx": ("tree_sitter_typescript", "language_tsx"),
    ".rs": ("tree_sitter_rust", "language"),
    ".go": ("tree_sitter_go", "language"),
    ".java": ("tree_sitter_java", "language"),
}
# Type of a node -> kind of the symbol; the node has a field "name", or "type" (Rust's `impl`).
_KINDS = {
    "function_declaration": "function",
    "function_definition": "function",
    "function_item": "function",
    "generator_function_declaration": "function",
    "function_signature": "function",
    "function_signature_item": "function",
    "method_definition": "method",
    "method_declaration": "method",
    "method_signature": "method",
    "abstract_method_signature": "method",
    "constructor_declaration": "method",
    "class_declaration": "class",
    "class_definition": "class",
    "abstract_class_declaration": "class",
    "interface_declaration": "interface",
    "trait_item": "interface",
    "type_alias_declaration": "type",
    "type_item": "type",
    "type_spec": "type",
    "record_declaration": "class",
    "enum_declaration": "enum",
    "enum_item": "enum",
    "struct_item": "struct",
    "union_item": "struct",
    "impl_item": "implementation",
    "mod_item": "module",
    "internal_module": "module",
    "const_item": "constant",
    "static_item": "constant",
    "const_spec": "constant",
}
# These count where they are no parts of a function.
_VARIABLES = {
    "variable_declarator": "variable",
    "var_spec": "variable",
    "public_field_definition": "field",
    "field_definition": "field",
    "property_signature": "field",
}
_FUNCTIONS = ("statement_block", "block", "arrow_function", "function_expression")
# What stands around a definition and belongs to it.
_AROUND = (
    "export_statement",
    "decorated_definition",
    "lexical_declaration",
    "variable_declaration",
)
_DEEPEST = 200
_LONGEST_DETAIL = 200  # characters


def has_grammar(suffix: str) -> bool:
    """Return whether the grammar for files of this ending is installed."""
    return _parser(suffix) is not None


@cache
def _parser(suffix: str) -> Any:
    """Return the parser for files of this ending; None where it is not installed."""
    if suffix not in GRAMMARS:
        return None
    module, function = GRAMMARS[suffix]
    try:  # extras, imported at the first file of their language
        sitter, grammar = import_module("tree_sitter"), import_module(module)
        return sitter.Parser(sitter.Language(getattr(grammar, function)()))
    except (ImportError, AttributeError, ValueError):  # missing, or for another tree-sitter
        return None


def tree_symbols(path: Path, source: SourceText) -> tuple[Symbol, ...]:
    """Return the symbols of a source text as a tree; parts that do not parse are left out.

    The file's ending must be one of which `has_grammar` is true.
    """
    root = _parser(path.suffix.lower()).parse(source.text.encode("utf-8", "replace")).root_node
    return tuple(_symbols_in(root, path, _Places(source), "", 0, in_function=False))


class _Places:
    """Converts offsets in the bytes of a text to offsets of characters."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self._bytes = b"" if source.text.isascii() else source.text.encode("utf-8", "replace")

    def __call__(self, offset: int) -> int:
        return len(self._bytes[:offset].decode("utf-8", "ignore")) if self._bytes else offset


def _symbols_in(
    node: Any, path: Path, at: _Places, container: str, depth: int, *, in_function: bool
) -> Iterator[Symbol]:
    if depth > _DEEPEST:
        return
    for child in node.named_children:
        kind = _KINDS.get(child.type) or ("" if in_function else _VARIABLES.get(child.type, ""))
        name = kind and (child.child_by_field_name("name") or child.child_by_field_name("type"))
        is_function = kind in ("function", "method") or child.type in _FUNCTIONS
        inside = kind != "class" and (in_function or is_function)
        if not name:
            yield from _symbols_in(child, path, at, container, depth + 1, in_function=inside)
            continue
        text = name.text.decode("utf-8", "replace")
        within = f"{container}/{text}" if container else text
        children = _symbols_in(child, path, at, within, depth + 1, in_function=inside)
        whole = child
        while whole.parent is not None and _belongs(whole, whole.parent):
            whole = whole.parent
        yield Symbol(
            text,
            "method" if kind == "function" and node.parent and _is_class(node.parent) else kind,
            path,
            at.source.range(at(whole.start_byte), at(whole.end_byte)),
            at.source.range(at(name.start_byte), at(name.end_byte)),
            tuple(children),
            _detail(child, name),
            container,
        )


def _belongs(node: Any, parent: Any) -> bool:
    return parent.type in _AROUND and (
        parent.type in _AROUND[:2] or len(parent.named_children) == 1
    )


def _is_class(node: Any) -> bool:
    return _KINDS.get(node.type) == "class"


def _detail(node: Any, name: Any) -> str:
    """Return the text between a definition's name and its body, on one line."""
    body = node.child_by_field_name("body")
    if body is None or body.start_byte <= name.end_byte:
        return ""
    text = node.text[name.end_byte - node.start_byte : body.start_byte - node.start_byte]
    joined = one_line(text.decode("utf-8", "replace"), _LONGEST_DETAIL)
    return joined.removesuffix("=>").rstrip(" :=")
