"""Floor 4, beside the app: an agent's tools for clients of the Model Context Protocol.

``agent.serve()`` serves over HTTP on this machine (`loopback`), ``python -m agent_magics.serve``
over the standard streams (`__main__`). Both put the same server (`protocol`) before the same calls
(`calls`), which pass approval like those of a model.
"""
