"""Runs the same attacks behind every way in which a command line can start a program.

`python -m tests.support.attacks.wrapped '{"root": …}'` plays a notebook kernel as `attacks.kernel`
does, and prints for each wrapper what its payload reached.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from agent_magics.exec.environment import command_environment
from agent_magics.exec.launcher_client import CONFINED_LIMITS, Launcher
from agent_magics.exec.sandbox.plan import build_confinement
from tests.support.attacks.world import Scene
from tests.support.sandbox.container import deny_namespaces

_PATIENCE = 90.0  # seconds for all wrappers

# What each of them runs, as P; D is its folder. A name before ":" is a program that it needs.
WRAPPERS = {
    "plain": "sh P",
    "xargs": "echo P | xargs sh",
    "xargs in parallel": "printf 'P\\0' | xargs -0 -P4 -n1 sh",
    "xargs with a file": "echo P > D/list; xargs -a D/list sh",
    "find -exec": "find D -name p.sh -exec sh {} ';'",
    "find -execdir": "find D -name p.sh -execdir sh {} +",
    "make:rule": "printf 'all:\\n\\tsh P\\n' | make -sf -",
    "make:function": "make -sf /dev/null --eval 'x := $(shell sh P)' || true",
    "make:shell": "printf 'all:\\n\\tx\\n' | make -sf - SHELL=P .SHELLFLAGS= || true",
    "git:alias": "git -c alias.x='!sh P' x",
    "git:external diff": "git -c diff.external='sh P' diff --no-index --ext-diff D/p.sh D/w.sh "
    "|| true",
    "git:GIT_EXTERNAL_DIFF": "GIT_EXTERNAL_DIFF='sh P' git diff --no-index D/p.sh D/w.sh || true",
    "git:GIT_SSH_COMMAND": "GIT_SSH_COMMAND='sh P' git ls-remote ssh://nowhere/x || true",
    "git:ext transport": "git -c protocol.ext.allow=always ls-remote 'ext::sh P' || true",
    "git:exec path": "cp P D/git-x; git --exec-path=D x",
    "git:config from the environment": "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.x "
    "GIT_CONFIG_VALUE_0='!sh P' git x",
    "git:global config": "printf '[alias]\\n x = !sh P\\n' > D/c; GIT_CONFIG_GLOBAL=D/c git x",
    "git:template hook": "mkdir -p D/t/hooks; cp P D/t/hooks/post-checkout; cd D; "
    "git init -q --template=D/t r || true; sh D/t/hooks/post-checkout",
    "env -S": "env -S 'sh P'",
    "env in a first line": "printf '#!/usr/bin/env -S sh P\\n' > D/s; chmod +x D/s; D/s",
    "here-document": "sh <<'END'\n. P\nEND",
    "here-string": "bash <<< '. P'",
    "process substitution": "bash <(cat P)",
    "command substitution": "x=$(sh P)",
    "arithmetic": "a='x[$(sh P)]'; ((a)) || true",
    "trap at the end": "bash -c \"trap 'sh P' EXIT\"",
    "trap of each command": "bash -c \"trap 'sh P' DEBUG; true\"",
    "trap of an error": "bash -c \"trap 'sh P' ERR; false\" || true",
    "PROMPT_COMMAND": "PROMPT_COMMAND='sh P' bash -i < /dev/null",
    "BASH_ENV": "BASH_ENV=P bash -c :",
    "ENV": "ENV=P dash -i < /dev/null",
    "start file": "bash --rcfile P -i < /dev/null",
    "PS4": "bash -xc \"PS4='\\$(sh P)'; :; :\"",
    "exported function": "f() { sh P; }; export -f f; bash -c f",
    "alias": "shopt -s expand_aliases; eval \"alias x='sh P'\"; eval x",
    "coprocess": "coproc sh P; wait",
    "background": "sh P & wait",
    "daemon": "(setsid sh P &); until [ -e D/done ]; do :; done",
    "own session": "setsid -w sh P",
    "nohup": "nohup sh P",
    "timeout": "timeout 9 sh P",
    "nice": "nice -n 5 ionice -c 3 sh P",
    "stdbuf": "stdbuf -o0 sh P",
    "taskset": "taskset 1 sh P",
    "flock": "flock D/lock sh P",
    "script:terminal": "script -qc 'sh P' /dev/null",
    "awk:system": "awk 'BEGIN { system(\"sh P\") }'",
    "awk:pipe": "awk 'BEGIN { \"sh P\" | getline }'",
    "sed": "echo x | sed '1e sh P'",
    "perl:exec": 'perl -e \'exec "sh", "P"\'',
    "perl:pipe": "perl -e 'open F, \"sh P |\"; print <F>'",
    "perl:PERL5OPT": "echo 'system(\"sh P\"); 1' > D/X.pm; PERL5LIB=D PERL5OPT=-MX perl -e 1",
    "python3:subprocess": "python3 -c \"import subprocess; subprocess.run(['sh', 'P'])\"",
    "python3:spawn": 'python3 -c "import os; '
    "os.wait4(os.posix_spawn('/bin/sh', ['sh', 'P'], {}), 0)\"",
    "python3:C library": "python3 -c \"import ctypes; ctypes.CDLL(None).system(b'sh P')\"",
    "python3:site": "echo \"import os; os.system('sh P')\" > D/sitecustomize.py; "
    "PYTHONPATH=D python3 -c 1; [ -e D/ran ] || PYTHONPATH=D python3 -c 'import sitecustomize'",
    "python3:memory file": "python3 -c \"import os; f = os.memfd_create('x', 0); "
    "os.write(f, open('P', 'rb').read()); os.execv(f'/proc/self/fd/{f}', ['x'])\"",
    "python3:terminal": "python3 -c \"import pty; pty.spawn(['sh', 'P'])\" || sh P",
    "node": "node -e \"require('child_process').execSync('sh P')\"",
    "node:NODE_OPTIONS": "echo \"require('child_process').execSync('sh P')\" > D/x.js; "
    "NODE_OPTIONS='--require D/x.js' node -e 1",
    "vim": "vim -u NONE -i NONE -n -es '+!sh P' '+q!' < /dev/null || true",
    "tclsh": "echo 'exec sh P' | tclsh",
    "sqlite3": "sqlite3 :memory: '.shell sh P'",
    "ssh": "ssh -F none -o ProxyCommand='sh P' nowhere || true",
    "tar:to a command": "tar cf - -C D w.sh | tar xf - --to-command='sh P'",
    "tar:checkpoint": "tar cf /dev/null -C D w.sh --checkpoint=1 --checkpoint-action=exec='sh P'",
    "tar:compressor": "tar cf D/x.tar -I 'sh P' -C D w.sh || true",
    "split": "echo x | split --filter='sh P' -",
    "run-parts": "mkdir -p D/parts; cp P D/parts/x; chmod +x D/parts/x; run-parts D/parts",
    "gcc:wrapper": "echo > D/x.c; gcc -wrapper sh,P -c D/x.c -o D/x.o || true",
    "gcc:preload": "printf '#include <stdlib.h>\\n__attribute__((constructor)) void f(void) "
    '{ unsetenv("LD_PRELOAD"); system("sh P"); }\' > D/y.c; '
    "gcc -shared -fPIC -o D/y.so D/y.c; LD_PRELOAD=D/y.so ls",
    "loader": "/lib64/ld-linux-x86-64.so.2 /bin/sh P",
    "descriptor": "exec 9< P; sh /proc/self/fd/9",
    "standard input": "sh /dev/stdin < P",
    "other name": "bash -c 'exec -a ls sh P'",
    "eval": "eval 'eval \"eval sh P\"'",
    "nested shells": 'sh -c "sh -c \'sh -c \\"sh P\\"\'"',
    "IFS": "x=sh,P; IFS=,; $x",
    "brace": "{sh,P}",
    "glob": "cd D; sh p.s?",
    "hexadecimal": "$'\\x73\\x68' P",
    "base64": "base64 P | base64 -d | sh",
}
_PAYLOAD = """#!/bin/sh
echo ran > D/ran
export BASH_ENV=
echo NAME > OUTSIDE/wrapped-NAME
echo NAME >> HOME/.bashrc
ln HOME/.ssh/id_rsa D/linked; cat D/linked > D/second
cat HOME/.ssh/id_rsa > D/secret
cat /proc/KERNEL/environ > D/environ
cat /proc/KERNEL/root/HOME/.aws/credentials > D/through
mkdir -p HOME/.config/NAME && echo made > D/made
chmod 777 HOME/.ssh/id_rsa && echo changed > D/mode
bash -c 'echo wrapped-NAME > /dev/tcp/127.0.0.1/PORT'
kill -0 KERNEL && echo signalled > D/signal
echo done > D/done
"""
# What the payload tries; each is a file in its folder, or is seen by the kernel.
TRIED = (
    *("write", "append", "second", "secret", "environ", "through", "made", "mode"),
    *("connect", "signal"),
)


class Kernel:
    """Runs all wrappers in one command of the sandbox, and looks at what they reached."""

    def __init__(self, scene: Scene, tier: int, network: bool, canary: str, port: int) -> None:
        self._scene, self._tier, self._network = scene, tier, network
        self._canary, self._port = canary, port
        self._folder = scene.workspace / f"wrapped{network:d}"
        self._temporary = scene.root / f"temporary{network:d}"
        self._temporary.mkdir()

    def run(self, launcher: Launcher) -> dict[str, dict[str, Any]]:
        """Return for each wrapper whether it ran, what it reached, and what it said."""
        names = [name for name in WRAPPERS if self._has_program(name)]
        for number, name in enumerate(names):
            self._write(number, name)
        free = not self._tier
        environment = dict(os.environ) if free else command_environment(os.environ)
        process = launcher.spawn(
            ["bash", str(self._folder / "all.sh")],
            cwd=str(self._scene.workspace),
            env=environment | {"TMPDIR": str(self._temporary)},
            confinement=None if free else self._confinement(),
        )
        process.wait(_PATIENCE)
        if not process.ended:
            process.kill("time")
            process.wait(_PATIENCE)
        found = {name: self._found(number) for number, name in enumerate(names)}
        return {name: found.get(name, {"lacking": name.partition(":")[0]}) for name in WRAPPERS}

    def _has_program(self, name: str) -> bool:
        program = name.partition(":")[0]
        known = ":" in name or program in ("node", "vim", "tclsh", "sqlite3", "ssh")
        return not known or shutil.which(program) is not None

    def _confinement(self) -> Any:
        return build_confinement(
            tier=self._tier,
            policy="workspace-write",
            roots=(self._scene.workspace,),
            cwd=self._scene.workspace,
            tmp=self._temporary,
            network=self._network,
            notebook=self._scene.workspace / "nb/open.ipynb",
        )

    def _write(self, number: int, name: str) -> None:
        folder = self._folder / str(number)
        folder.mkdir(parents=True)
        payload = (
            _PAYLOAD.replace("HOME", str(self._scene.home))
            .replace("OUTSIDE", str(self._scene.outside))
            .replace("KERNEL", str(os.getpid()))
            .replace("PORT", str(self._port))
            .replace("NAME", f"{self._network:d}-{number}")
            .replace("D/", f"{folder}/")
        )
        (folder / "p.sh").write_text(payload, encoding="utf-8")
        (folder / "p.sh").chmod(0o755)
        (folder / "w.sh").write_text(_filled(WRAPPERS[name], folder), encoding="utf-8")
        with (self._folder / "all.sh").open("a", encoding="utf-8") as every:
            every.write(f"timeout 20 bash {folder}/w.sh > {folder}/out 2>&1 < /dev/null\n")

    def _found(self, number: int) -> dict[str, Any]:
        folder, mark = self._folder / str(number), f"{self._network:d}-{number}"
        text = {path.name: _text(path) for path in folder.iterdir() if path.is_file()}
        reached = {
            "write": (self._scene.outside / f"wrapped-{mark}").exists(),
            "append": mark in (self._scene.home / ".bashrc").read_text("utf-8").split(),
            "connect": f"wrapped-{mark}" in {word.strip() for word in self._scene.mailbox.words},
            "made": "made" in text,
            "mode": "mode" in text,
            "signal": "signal" in text,
        }
        for name in ("second", "secret", "environ", "through"):
            reached[name] = self._canary in text.get(name, "")
        return {
            "ran": "done" in text,
            "reached": sorted(name for name in TRIED if reached[name]),
            "said": text.get("out", "")[-300:],
        }


def _filled(script: str, folder: Path) -> str:
    """Put the paths in the places of P and D, where these letters stand alone."""
    script = re.sub(r"(?<![A-Za-z_0-9.])P(?![A-Za-z_0-9])", f"{folder}/p.sh", script)
    return re.sub(r"(?<![A-Za-z_0-9.])D(?![A-Za-z_0-9])", str(folder), script)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def main(task: dict[str, Any]) -> dict[str, Any]:
    """Run the wrappers in the configuration that the task names; see `attacks.kernel.main`."""
    if task["container"]:
        deny_namespaces()
    canary = os.environ["OPENAI_API_KEY"]
    scene = Scene(Path(task["root"]), canary, CONFINED_LIMITS["RLIMIT_FSIZE"])
    launcher = Launcher()
    try:
        able = launcher.capabilities()
        if able.tier < task["tier"]:
            return {"untested": able.reason}
        port = scene.facts["tcp_port"]
        networks = (False, True) if task["tier"] else (False,)
        return {
            "outcomes": {
                f"{name}, network" if network else name: outcome
                for network in networks
                for name, outcome in Kernel(scene, task["tier"], network, canary, port)
                .run(launcher)
                .items()
            }
        }
    finally:
        launcher.close()
        scene.close()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(json.loads(sys.argv[1]))))
