"""The Chat Completions API.

``model`` makes the requests and reads the stream; the others encode and decode its parts.
"""
