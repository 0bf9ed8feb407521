"""Model Context Protocol (MCP): configuration, connections, elicitation; tools are in
``tools/mcp``.

Read ``client/`` first (``manager``, then ``server``). Modules here are shared by the subfolders.
"""
