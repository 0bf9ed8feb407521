"""Language servers: found, started in the sandbox, kept in step with the files, asked, ended.

Read ``manager`` first: it has one server for each language and folder. ``project`` is what tools
ask; the protocol's types and client come from lsprotocol and pygls, imported with the first server.
"""
