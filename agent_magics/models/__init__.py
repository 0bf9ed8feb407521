"""Clients of model providers, recordings of their answers, and clients that replay recordings.

Read ``base`` first: the interface of every client. ``transport`` alone imports ``aiohttp``.
"""
