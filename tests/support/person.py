"""A person of a test, who answers an agent's questions."""

from dataclasses import dataclass


@dataclass
class Reply:
    """An answer with more than its decision, as `on_question` may return it."""

    decision: str
    feedback: str = ""
    edited_text: str | None = None
    edited_arguments: object = None


class Person:
    """Answers questions in turn, the last answer again and again, and remembers the questions."""

    def __init__(self, *answers):
        self.asked = []
        self._answers = list(answers)

    def __call__(self, question):
        self.asked.append(question)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
