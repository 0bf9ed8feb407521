"""The tools for the notebook that is open in JupyterLab: read its cells, change and run them.

Read ``cells`` first.
"""
