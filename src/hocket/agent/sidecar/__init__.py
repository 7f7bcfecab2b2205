"""The process beside one attempt of a job: it starts the job, passes signals on, reads progress and tells how it ended.

It imports little and no third-party package, for each running job has one.
"""


def main() -> int:
    """Run the attempt in the folder that the command line names. Agents of every version launch sidecars by this."""
    from hocket.agent.sidecar.loop import main as run

    return run()
