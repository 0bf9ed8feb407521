"""mini-swe-agent: `DefaultAgent` over litellm, which does not stream.

Its only tool is bash. Here the environment runs the function that the command names, so that no
process is started.
"""

# ruff: noqa: PLC0415 - a process imports only what it measures

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["MSWEA_COST_TRACKING"] = "ignore_errors"
os.environ["MSWEA_SILENT_STARTUP"] = "1"
os.environ["MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT"] = "1"
IMPORT = (
    "from minisweagent.agents.default import DefaultAgent; "
    "from minisweagent.environments.local import LocalEnvironment; "
    "from minisweagent.models.litellm_model import LitellmModel"
)
WIRES = ("responses", "chat")
DIALECT = ".bash"
BASH_ONLY = "its only tool is bash"
CANNOT = {
    "parallel-async": "no async tools",
    "deltas-responses": "does not stream",
    "deltas-chat": "does not stream",
    "dispatch": BASH_ONLY,
    "tools": BASH_ONLY,
}
ARGUMENTS = {"add": (1, 2), "read_log": (1, 2), "nap": (1,)}


def connect(wire, base_url, functions, turns):
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.exceptions import Submitted
    from minisweagent.models.litellm_model import LitellmModel
    from minisweagent.models.litellm_response_model import LitellmResponseModel

    known = {function.__name__: function for function in functions}

    class Environment(LocalEnvironment):
        def execute(self, action, cwd="", *, timeout=None):
            command = action["command"]
            if command == "submit":
                result = {"exit_status": "Submitted", "submission": "All done."}
                raise Submitted({"role": "exit", "content": "All done.", "extra": result})
            output = str(known[command](*ARGUMENTS[command]))
            return {"output": output, "returncode": 0, "exception_info": ""}

    model = (LitellmResponseModel if wire == "responses" else LitellmModel)(
        model_name="openai/gpt-4o",
        model_kwargs={"api_base": base_url, "api_key": "x", "num_retries": 0},
    )
    agent = DefaultAgent(
        model, Environment(), system_template="go", instance_template="go", cost_limit=0
    )
    return lambda: agent.run("go")["submission"]
