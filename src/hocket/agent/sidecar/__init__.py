"""The process beside one attempt of a job: it starts the job, passes signals on, reads progress and tells how it ended.

It imports little and no third-party package, for each running job has one.
"""


def main() -> int:
    """Run the attempt in the folder that the command line names. Agents of every version launch sidecars by this."""
    import gc

    gc.disable()  # Nothing of what is imported is garbage.
    from hocket.agent.sidecar.loop import main as run

    gc.enable()
    try:
        return run()
    finally:
        gc.freeze()  # The process ends: the system takes its memory back at once, Python would look through all of it.
