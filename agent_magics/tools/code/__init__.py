"""The tools for Python code: run it in the kernel or in a scratch process, inspect variables.

Read ``python`` first. (A folder named ``python`` would stand in the place of the tool.)
"""
