"""The tools of an agent: the sources that give them, the catalogue that joins them, the search.

Read ``agent_tools`` first: the catalogue makes the registry and the offer of one run.
"""
