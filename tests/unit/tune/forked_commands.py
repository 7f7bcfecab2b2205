"""Runs `hocket` for each line that it reads: a process of its own that can be killed, forked from one with PyTorch.

To load PyTorch takes several times as long as the studies that are killed. A line is [{"NAME": "value"}, "argument", …]
in JSON: environment and arguments. Printed are the process's id at its start, and its exit code as Python has it.
Its output goes to nothing, and its errors to the file in the variable ERRORS.
"""

import json
import os
import sys
from pathlib import Path

import torch

from hocket.cli.main import run

torch.optim.SGD([torch.zeros(1)], 0.1)  # the first optimiser loads half of PyTorch

for line in sys.stdin:
    variables, *arguments = json.loads(line)
    if not (pid := os.fork()):
        os.environ.update(variables)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os.dup2(os.open(Path(variables["ERRORS"]), os.O_WRONLY | os.O_CREAT), sys.stderr.fileno())
        sys.argv[1:] = arguments
        run()
        sys.exit()
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
