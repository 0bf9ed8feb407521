"""One module per subject: its import, agent, run and single call.

Each has ``IMPORT`` (the statement a program begins with), ``WIRES``, ``CANNOT`` (row to reason) and

- ``connect(wire, base_url, functions, turns)``: a new agent with `functions` as tools; returns what
  runs it once, plain or a coroutine function, and gives the final text;
- ``make_tool(function)``: a tool whose schema is built;
- ``dispatcher(function, text)``: what makes one call with the JSON `text`, plain or async:
  arguments parsed, checked where the peer checks, the function called, its result made text.

They follow each peer's own documentation. Tracing, telemetry and questions are off.
"""
