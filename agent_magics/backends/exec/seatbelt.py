"""The same confinement as arguments of macOS' ``sandbox-exec``; written by its rules, never run.

Nothing calls this yet: on macOS commands have tier 0 until somebody has run it there. The profile
language (SBPL) is not documented; the form follows the profiles in /System/Library/Sandbox.
"""

import os
from collections.abc import Sequence

from agent_magics.backends.launcher.wire import Confinement

# Never looked up in PATH: whoever can put a program there would be the sandbox.
_PROGRAM = "/usr/bin/sandbox-exec"
_BASE = """\
(version 1)
(deny default)
(allow process-exec)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow user-preference-read)
(allow mach-lookup (global-name "com.apple.system.opendirectoryd.libinfo"))
(allow file-read*)
(allow file-read* file-write-data file-ioctl (literal "/dev/null") (literal "/dev/zero"))
(allow file-read* file-write* file-ioctl (literal "/dev/ptmx") (literal "/dev/tty"))
(allow file-read* file-write* file-ioctl (regex #"^/dev/ttys[0-9]+$"))
"""
_NETWORK = """\
(allow system-socket)
(allow network-outbound (remote tcp "*:80") (remote tcp "*:443"))
(deny network-outbound (remote ip "localhost:*"))
(allow mach-lookup (global-name "com.apple.dnssd.service"))
"""


def seatbelt_arguments(confinement: Confinement, command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` confined.

    Paths are handed over as parameters, not as text of the profile, so that no name can end a
    rule. The last rule that fits wins, so what is refused stands behind what is granted.

    Args:
        confinement: its paths are symlink-free, as Seatbelt compares them (/tmp is /private/tmp).
        command: the program and its arguments.
    """
    rules, parameters = [_BASE], []
    for kind, paths, rule in (
        ("WRITABLE", confinement.writable, "(allow file-write* {place})"),
        ("PROTECTED", confinement.protected, "(deny file-write* {place})"),
        ("HIDDEN", confinement.hidden, "(deny file-read* file-write* {place})"),
    ):
        for number, path in enumerate(paths):
            name = f"{kind}_{number}"
            parameters.append(f"-D{name}={os.fspath(path)}")
            # A folder with all that is in it; for a file it means the file itself.
            rules.append(rule.format(place=f'(subpath (param "{name}"))') + "\n")
    if confinement.network:
        rules.append(_NETWORK)
    return [_PROGRAM, "-p", "".join(rules), *parameters, "--", *command]
