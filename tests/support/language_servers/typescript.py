"""TypeScript's language server, where `make servers` has installed it."""

from pathlib import Path

_PLACE = Path(__file__).resolve().parents[3] / "build" / "servers" / "typescript"
NODE = _PLACE / "bin" / "node"
_PROGRAM = _PLACE / "node_modules" / "typescript-language-server" / "lib" / "cli.mjs"
# For the setting `language_servers`.
TABLE = {"command": str(NODE), "args": [str(_PROGRAM), "--stdio"]}
