"""Built-in data about providers: addresses, keys, context windows, prices, model families.

Read ``endpoints`` first.
"""
