"""Become LibreOffice, without a network and with the files of one folder only.

Arguments: the parent's process id, processor seconds, bytes of a file that it may write, its program and arguments. It
starts in the folder.
"""

from __future__ import annotations

import os
import resource
import signal
import sys

from twopass.runtime import confinement, parent_death

NOT_CONFINED = 78  # the exit status where the machine has no means to deny it the network


def main() -> None:
    parent, cpu_s, file_bytes, *command = sys.argv[1:]
    parent_death.end_with_parent(int(parent))
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s), int(cpu_s)))  # SIGKILL: LibreOffice catches SIGXCPU
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(file_bytes), int(file_bytes)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    if not confinement.deny_network():
        sys.exit(NOT_CONFINED)
    confinement.limit_files(os.getcwd(), os.path.dirname(command[0]))
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
