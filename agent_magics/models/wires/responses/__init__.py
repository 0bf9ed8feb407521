"""The Responses API.

``model`` makes the requests and reads the stream; ``items`` encodes and decodes items and tools.
"""
