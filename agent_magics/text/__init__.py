"""Shortens text, and recognises in it what a person must know: keys, and letters that deceive.

Read ``brief`` first. Nothing here imports another folder.
"""
