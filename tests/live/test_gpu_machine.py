"""On a machine with NVIDIA GPUs: they are found, and no CUDA context exists before a job is handed one."""

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.controller import LiveController, awaited
from tests.whole_lines import whole_lines

from hocket.agent.node.events_reader import facts
from hocket.agent.node.gpus import nvidia_gpus

GPUS = nvidia_gpus()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not GPUS, reason="a machine with an NVIDIA GPU")]

LEAVES_WHEN_TOLD = """
import json, os, signal, sys, time
import torch

def leave(*_):
    while not os.path.exists(sys.argv[1] + ".leave"):
        time.sleep(0.05)
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
held = torch.ones(1 << 20, device="cuda")
open(sys.argv[1], "w").write(json.dumps(os.getpid()) + "\\n")
while True:
    time.sleep(1)
"""
SAYS = """
import json, os, sys
import torch
before = torch.cuda.is_initialized()
total = float((torch.ones(1000, 1000, device="cuda") @ torch.ones(1000, 1000, device="cuda")).sum())
facts = {"before": before, "count": torch.cuda.device_count(), "name": torch.cuda.get_device_name(0), "total": total}
open(sys.argv[1], "w").write(json.dumps({**facts, "pid": os.getpid(), "world": os.environ.get("WORLD_SIZE")}) + "\\n")
"""
LOOKS_EARLY = """
import json, sys
import looks_for_gpus
open(sys.argv[1], "w").write(json.dumps(looks_for_gpus.DEVICE) + "\\n")
"""


@pytest.fixture
def controller(tmp_path: Path) -> Iterator[LiveController]:
    with LiveController(tmp_path, "--policy", "fifo", "--name", "n0") as found:
        found.begin()
        yield found
        found.down(grace_s=0.0)


def submit(controller: LiveController, name: str, text: str, *launcher: str, **fields: Any) -> Path:
    """A program that says something in a file: that file."""
    script, said = controller.root / f"{name}.py", controller.root / f"{name}.json"
    script.write_text(text)
    command = [*(launcher or [sys.executable]), str(script), str(said)]
    env = {"PATH": os.environ["PATH"]}
    job = {"id": name, "command": command, "cwd": str(controller.root), "env": env, "sizes": [len(GPUS)], **fields}
    (answer,) = controller.call("POST", "/v1/jobs", {"jobs": [job]})["jobs"]
    assert not answer["refused"], answer
    return said


def told(path: Path) -> Any:
    """What a program said, once it did."""
    awaited(lambda: bool(whole_lines(path)), f"{path.name} written", within_s=120.0)
    return json.loads(whole_lines(path)[0])


def leave(holds: Path) -> None:
    """Let the holder go, which was told to stop."""
    Path(f"{holds}.leave").touch()


def prepared(controller: LiveController, name: str) -> dict[str, Any]:
    """What the sidecar says of the job that stands by."""
    events = controller.home / "agent" / "runs" / name / "1" / "events.jsonl"
    found: list[dict[str, Any]] = []

    def is_told() -> bool:
        found[:] = [event for event, _ in facts(str(events), 0) if event["event"] == "prepared"]
        return bool(found)

    awaited(is_told, f"'{name}' prepared", within_s=120.0)
    return found[0]


def files_of(pid: int) -> list[str]:
    """Open files of the driver."""
    found = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
        found += [target] if target.startswith("/dev/nvidia") else []
    return found


def used_mib() -> float:
    """GPU memory in use on the first device, by NVML."""
    nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    memory = (ctypes.c_ulonglong * 3)()
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(0), ctypes.byref(device))
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    nvml.nvmlShutdown()
    return memory[2] / (1 << 20)


def test_the_agent_finds_the_gpus_and_says_their_kind_and_memory(controller: LiveController) -> None:
    awaited(lambda: bool(controller.call("GET", "/v1/nodes")["nodes"]), "the node known")
    (node,) = controller.call("GET", "/v1/nodes")["nodes"]
    print("node:", node)
    assert len(node["gpus"]) == len(GPUS)
    said = told(submit(controller, "look", SAYS))
    assert said["count"] == len(GPUS)
    assert said["name"] == node["gpu_kind"]


@pytest.mark.parametrize("launcher", [(), (sys.executable, "-m", "torch.distributed.run", "--standalone")])
def test_no_cuda_context_exists_before_hand_over(controller: LiveController, launcher: tuple[str, ...]) -> None:
    holds = submit(controller, "holder", LEAVES_WHEN_TOLD, grace_s=300.0)
    holder = told(holds)
    assert files_of(holder), "a process with a context has the driver's files open: else this test shows nothing"
    before_mib = used_mib()
    said = submit(controller, "next", SAYS, *launcher, warm=True)
    controller.call("POST", "/v1/jobs/holder/stop")
    event = prepared(controller, "next")
    print("prepared:", event)
    assert event["warm"], event
    assert [files_of(pid) for pid in event["pids"]] == [[]] * len(event["pids"])
    assert used_mib() == pytest.approx(before_mib, abs=1.0)
    assert not said.exists()
    leave(holds)
    facts = told(said)
    print("ran:", facts)
    assert facts["before"] is False
    assert facts["total"] == 1e9
    assert facts["count"] == len(GPUS)


def test_a_job_whose_imports_look_for_gpus_starts_cold_and_finds_them(controller: LiveController) -> None:
    look = "import torch\nDEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
    (controller.root / "looks_for_gpus.py").write_text(look)
    holds = submit(controller, "holder", LEAVES_WHEN_TOLD, grace_s=300.0)
    told(holds)
    said = submit(controller, "early", LOOKS_EARLY, warm=True)
    controller.call("POST", "/v1/jobs/holder/stop")
    event = prepared(controller, "early")
    print("prepared:", event)
    assert not event["warm"], event
    assert "look for GPUs" in event["reason"]
    leave(holds)
    assert told(said) == "cuda"
