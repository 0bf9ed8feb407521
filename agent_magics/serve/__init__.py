"""An agent's tools for clients of the Model Context Protocol.

Read ``protocol`` first: the server. ``agent.serve()`` runs it over HTTP on this machine
(``loopback``), ``python -m agent_magics.serve`` over the standard streams. Calls (``calls``) pass
approval like those of a model.
"""
