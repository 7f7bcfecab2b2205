"""Makes the pictures of docs/page.md: a real controller with real jobs on virtual devices, and a real Chromium.

    python docs/page_pictures.py

It takes about five minutes, and needs Chromium and `pip install playwright`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "img"
TRAIN = ["python", "examples/train_numpy.py"]
# (seconds from the beginning, a command: with options of submit and arguments of the script, or of its own)
STEPS = [
    (0, "submit --owner ana --name resnet50 --gpus 4 --until acc>=95%", "--epochs 600 --pace 0.5"),
    (0, "submit --owner ana --name tokenizer --gpus 1", "--epochs 30 --pace 0.5"),
    (3, "submit --owner bob --name sweep --array 5 --gpus 1", "--epochs 70 --pace 0.6"),
    (30, "submit --owner cleo --name vit-large --gpus 4", "--epochs 90 --pace 0.4"),
    (60, "submit --owner cleo --name vit-small --gpus 2", "--epochs 90 --pace 0.4"),
    (70, "pause resnet50", ""),
    (85, "submit --owner bob --name baseline --gpus 2", "--epochs 160 --pace 0.4"),
    (95, "submit --owner ana --name ablation --array 6 --gpus 1", "--epochs 90 --pace 0.4"),
    (110, "resume resnet50", ""),
    (200, "submit --owner dan --name whisper --gpus 8", "--epochs 30 --pace 0.4"),
]
RUN_S = 225.0


def hocket(home: str, *words: str) -> str:
    """What a command prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # so that jobs find the same Python by its name
    env = {**os.environ, "HOCKET_HOME": home, "PATH": path}
    command = [sys.executable, "-m", "hocket", *words]
    return subprocess.run(command, env=env, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def run_jobs(home: str) -> None:
    """Each step when its time comes."""
    began_s = time.monotonic()
    for at_s, command, arguments in STEPS:
        time.sleep(max(0.0, began_s + at_s - time.monotonic()))
        hocket(home, *command.split(), *(["--", *TRAIN, *arguments.split()] if arguments else []))
    time.sleep(max(0.0, began_s + RUN_S - time.monotonic()))


def run_study(home: str) -> None:
    """A short one, on no device."""
    space = ["--space", "rate=loguniform:0.001,1", "--space", "hidden=choice:8,16,32,64"]
    search = [
        "--search",
        "halving",
        "--trials",
        "24",
        "--units",
        "9",
        "--metric",
        "acc",
        "--gpus",
        "0",
        "--cores",
        "0.1",
    ]
    script = [*TRAIN, "--learning-rate", "{rate}", "--hidden", "{hidden}", "--epochs", "{units}", "--pace", "0.02"]
    out = ["--name", "rates", "--owner", "ana", "--out", f"{home}/study"]
    hocket(home, "tune", *out, *space, *search, "--", *script)


def take_pictures(home: str) -> None:
    """The overview, one job, the past, the form, what if and a study, as a user sees them."""
    link = json.loads(hocket(home, "open", "--json"))["url"]
    url = link.partition("/#")[0]
    with sync_playwright() as playwright:
        path, flags = shutil.which("chromium") or shutil.which("google-chrome"), ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=path, args=flags)
        page = browser.new_page(viewport={"width": 1240, "height": 780})
        page.goto(link)
        page.wait_for_selector(".share")
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "page_overview.png")
        page.emulate_media(color_scheme="dark")
        page.set_viewport_size({"width": 1240, "height": 1120})
        page.goto(f"{url}/#/jobs/resnet50")
        page.wait_for_selector(".line")
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "page_job.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1240, "height": 680})
        page.goto(f"{url}/#/past")
        page.wait_for_selector(".gpu.held")
        for _ in range(4):
            page.get_by_label("Previous decision").click()
            page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "page_past.png")
        page.goto(f"{url}/#/submit")
        page.get_by_label("Command", exact=True).fill("torchrun --nproc_per_node=4 train.py --lr 0.1")
        page.get_by_label("GPUs", exact=True).fill("4,8,16")
        page.get_by_label("Until").fill("acc >= 92% within 2h")
        page.get_by_label("Environment").fill("DATA=/data/imagenet")
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "page_submit.png")
        page.set_viewport_size({"width": 1240, "height": 1180})
        page.goto(f"{url}/#/whatif")
        page.get_by_label("Policy").select_option("fifo")
        page.get_by_role("button", name="Run").click()
        page.wait_for_selector(".what-if-result canvas")
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "page_whatif.png")
        page.set_viewport_size({"width": 1240, "height": 780})
        page.goto(f"{url}/#/studies/rates")
        page.wait_for_selector(".study td")
        page.wait_for_timeout(1500)
        page.screenshot(path=IMAGES / "page_study.png")
        browser.close()


def main() -> None:
    """Start a controller, run jobs, take the pictures, and stop it."""
    with tempfile.TemporaryDirectory(prefix="hocket-page-") as home:
        hocket(home, "up", "--detach", "--gpus", "8", "--name", "gpu-1", "--policy", "las")
        try:
            run_study(home)
            run_jobs(home)
            take_pictures(home)
        finally:
            hocket(home, "down", "--grace", "0")


if __name__ == "__main__":
    main()
