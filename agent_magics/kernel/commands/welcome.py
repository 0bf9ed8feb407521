"""``%agent`` before the first turn: the model, its key, and what a newcomer may do next."""

from agent_magics.kernel.commands.login import describe_key
from agent_magics.kernel.notebook import NotebookAgents
from agent_magics.render.markdown import code_span
from agent_magics.render.tables import table

_BEGIN = """\
Begin a cell with `%%agent` and write below it what you want. The agent works in this kernel, where
your data is: it asks before it runs code here, or anything outside the sandbox, and shows below the
cell what it did.

```
%%agent
Which columns of df have missing values, and why?
```"""

_NEXT = (
    ("`%agent login`", "keeps a key for the model's server; you type it where nobody sees it"),
    ("`%agent tools`", "the tools that the model has"),
    ("`%agent approvals`", "what may run without a question"),
    ("`%agent sessions`", "earlier conversations, to resume"),
    ("`%agent doctor`", "what works in this kernel, and why something does not"),
    ("`%agent help`", "all words of `%agent`; `%%agent?` lists the options of a cell"),
)


def show_welcome(notebook: NotebookAgents) -> str:
    """How to begin: the model, its key, and what to do next; also `%agent` before a turn."""
    settings = notebook.settings_now()
    now = table(("", ""), [("Model", code_span(settings.model)), ("Key", describe_key(settings))])
    return f"{_BEGIN}\n\n{now}\n\n{table(('Next', ''), _NEXT)}"
