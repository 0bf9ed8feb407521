"""The data that all calls of one turn share: events, questions, live code, servers, file changes.

Read ``context`` first; the other modules define the interfaces that it refers to.
"""
