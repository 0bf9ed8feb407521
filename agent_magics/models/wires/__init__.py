"""The wire APIs (HTTP APIs) of providers: Responses and Chat Completions, and what both share.

Read ``responses/`` first; ``remote`` sends a request, ``answer`` reads the stream.
"""
