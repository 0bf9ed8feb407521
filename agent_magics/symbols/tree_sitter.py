"""Finds the symbols of other languages with tree-sitter's grammars, where those are installed."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import accumulate
from pathlib import Path
from typing import Any

from agent_magics.symbols.text import SourceText, one_line
from agent_magics.symbols.types import Range, Symbol

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
    "assignment": "variable",
    "type_alias_statement": "variable",
    "public_field_definition": "field",
    "field_definition": "field",
    "property_signature": "field",
}
_NAME_FIELDS = ("name", "property", "left", "type")
_PATTERNS = ("object_pattern", "array_pattern", "pattern_list", "list_pattern", "tuple_pattern")
_BOUND = ("identifier", "shorthand_property_identifier_pattern")
_FUNCTION_VALUES = ("arrow_function", "function_expression", "generator_function")
_FUNCTIONS = ("statement_block", "block", *_FUNCTION_VALUES)
_STRINGS = ("template_string", "string", "string_literal", "raw_string_literal")
# What stands around a definition and belongs to it; the last two where they hold no other.
_AROUND_ONE = ("export_statement", "ambient_declaration", "decorated_definition")
_AROUND = (*_AROUND_ONE, "lexical_declaration", "variable_declaration")
_DEEPEST = 200
# What is not inside a function, though it has a body.
_OPEN = ("internal_module", "module", "class_definition")
_BLOCK = 4096  # bytes
_CONTINUING = bytes(range(0x80, 0xC0))  # bytes of UTF-8 that begin no character
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
    return tuple(_NodeReader(path, source).read(root, "", 0, in_function=False))


def tree_error(suffix: str, text: str) -> int | None:
    """Return the first line, from 0, that a language's grammar does not understand."""
    node = _parser(suffix).parse(text.encode("utf-8", "replace")).root_node
    while wrong := next((each for each in node.children if each.has_error), None):
        node = wrong
    return node.start_point[0] if node.has_error else None


def string_lines(suffix: str, text: str) -> set[int]:
    """Return the lines, from 0, of a definition that begin inside a string."""
    found, waiting = set[int](), [_parsed_part(suffix, text)]
    while waiting:
        node = waiting.pop()
        if node.type in _STRINGS:
            found.update(range(node.start_point[0] + 1, node.end_point[0] + 1))
        else:
            waiting += node.children
    return found


def ends_in_comment(suffix: str, text: str) -> bool:
    """Return whether a definition has a comment at its end."""
    node = _parsed_part(suffix, text)
    while inner := [each for each in node.children if not each.is_missing]:
        node = inner[-1]
    return "comment" in node.type


def _parsed_part(suffix: str, text: str) -> Any:
    """Return the tree of a definition that may be part of a class; `has_grammar` must be true."""
    parts = (text, f"class A {{{text}")  # which has an error, too: its end is missing
    trees = [_parser(suffix).parse(each.encode("utf-8", "replace")).root_node for each in parts]
    return trees[trees[0].has_error]


class _NodeReader:
    """Makes symbols of the nodes of one text; nodes count bytes, and symbols characters."""

    def __init__(self, path: Path, source: SourceText) -> None:
        self._path, self._source = path, source
        self._bytes = data = (
            b"" if source.text.isascii() else source.text.encode("utf-8", "replace")
        )
        blocks = (data[at : at + _BLOCK] for at in range(0, len(data), _BLOCK))
        self._before = [0, *accumulate(map(_characters, blocks))]
        self._assigned = set[str]()  # names that need no declaration; the first time counts

    def read(self, node: Any, container: str, depth: int, *, in_function: bool) -> Iterator[Symbol]:
        """Yield the symbols inside a node."""
        if depth > _DEEPEST:
            return
        for child in node.named_children:
            kind = _kind_of(child, node, in_function=in_function)
            named = _name_of(child) if kind else None
            is_pattern = named is not None and named.type in _PATTERNS
            names = [*_bound(named)] if is_pattern else [named] if named else []
            is_function = kind in ("function", "method") or child.type in _FUNCTIONS
            is_open = kind == "class" or node.type in _OPEN
            inside = not is_open and (in_function or is_function)
            if is_pattern or not names:
                yield from self.read(child, container, depth + 1, in_function=inside)
            for name in names:
                text = name.text.decode("utf-8", "replace")
                within = f"{container}/{text}" if container else text
                if child.type == "assignment" and within in self._assigned:
                    continue
                self._assigned.add(within)
                children = (
                    [] if is_pattern else self.read(child, within, depth + 1, in_function=inside)
                )
                first, last = (name, name) if is_pattern else _ends(child)
                yield Symbol(
                    text,
                    kind,
                    self._path,
                    self._range(first, last),
                    self._range(name, name),
                    tuple(children),
                    "" if is_pattern else _detail(child, name),
                    container,
                )

    def _range(self, first: Any, last: Any) -> Range:
        return self._source.range(self._at(first.start_byte), self._at(last.end_byte))

    def _at(self, offset: int) -> int:
        if not self._bytes:
            return offset
        number, rest = divmod(offset, _BLOCK)
        return self._before[number] + _characters(self._bytes[offset - rest : offset])


def _characters(data: bytes) -> int:
    return len(data.translate(None, _CONTINUING))


def _kind_of(node: Any, parent: Any, *, in_function: bool) -> str:
    """Return the kind of the symbol that a node is; "" for none."""
    kind = _KINDS.get(node.type) or ("" if in_function else _VARIABLES.get(node.type, ""))
    if kind in ("variable", "field") and _value_of(node).type in _FUNCTION_VALUES:
        return "method" if kind == "field" else "function"
    return "method" if kind == "function" and parent.parent and _is_class(parent.parent) else kind


def _name_of(node: Any) -> Any:
    """Return the node of the name, or pattern of names, that a definition gives; None for none."""
    fields = (node.child_by_field_name(each) for each in _NAME_FIELDS)
    name: Any = next((each for each in fields if each), None)
    if name is not None and name.type == "type":  # of an alias: X, or X[T]
        return next(_bound(name), None)
    is_name = node.type != "assignment" or name.type in (*_BOUND, *_PATTERNS)
    return name if is_name else None  # `a.b = 1` and `a[0] = 1` name nothing


def _bound(pattern: Any) -> Iterator[Any]:
    """Yield the names in a pattern; not those in its keys and defaults."""
    for child in pattern.named_children:
        if child.type in _BOUND:
            yield child
        elif child.type not in ("attribute", "subscript"):  # `a.b` and `a[0]` name nothing
            inner = child
            while deeper := inner.child_by_field_name("value") or inner.child_by_field_name("left"):
                inner = deeper
            if inner.type in _BOUND:
                yield inner
            else:
                yield from _bound(inner)


def _value_of(node: Any) -> Any:
    """Return what a variable is; the node itself where it is nothing."""
    return node.child_by_field_name("value") or node


def _ends(node: Any) -> tuple[Any, Any]:
    """Return the first and last node of a definition, with what around it belongs to it."""
    while node.parent is not None and _belongs(node, node.parent):
        node = node.parent
    first, before = node, node.prev_sibling
    while before is not None and before.type in ("decorator", "comment"):
        if before.type == "decorator":  # perhaps above a comment
            first = before
        before = before.prev_sibling
    return first, node


def _belongs(node: Any, parent: Any) -> bool:
    return parent.type in _AROUND and (
        parent.type in _AROUND_ONE or len(parent.named_children) == 1
    )


def _is_class(node: Any) -> bool:
    return _KINDS.get(node.type) == "class"


def _detail(node: Any, name: Any) -> str:
    """Return the text between a definition's name and its body, on one line."""
    value = _value_of(node)
    first = name.end_byte
    if value != node:  # a function as the value of a variable
        given = value.child_by_field_name("parameters")
        first = node.end_byte if given is None else given.start_byte
    body = value.child_by_field_name("body")
    if body is None or body.start_byte <= first:
        return ""
    text = node.text[first - node.start_byte : body.start_byte - node.start_byte]
    joined = one_line(text.decode("utf-8", "replace"), _LONGEST_DETAIL)
    return joined.removesuffix("=>").rstrip(" :=")
