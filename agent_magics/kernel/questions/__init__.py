"""Questions to the person: widgets, clicks while the main thread blocks, and typed answers.

Read ``ladder`` first: it chooses the one way in which a question is asked.
"""
