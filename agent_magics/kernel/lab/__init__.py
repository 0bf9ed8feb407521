"""The connection to the pages of JupyterLab: the open notebook and tools of other extensions.

Read ``link`` first: everything else goes over it.
"""
