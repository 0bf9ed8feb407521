"""Questions to the person: widgets, clicks while the main thread blocks, and typed answers.

Read ``ways`` first: it chooses the one way in which a question is asked.
"""
