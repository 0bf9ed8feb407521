"""Asks rows through a provider's batch API, at the price that it has for requests that may wait.

Read ``job`` first: it writes rows into files, sends these, waits, and takes the results in.
``ledger`` keeps what was sent, so that another kernel takes it up.
"""
