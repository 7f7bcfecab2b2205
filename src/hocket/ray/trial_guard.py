"""`python trial_guard.py JOB [HOME]`: stops the job of a trial when the actor that looks after it is killed.

Ray ends the actors of a program that is killed, without a word to them: their jobs would run on with nothing that
listens. Ray also kills the children of an actor, so this process leaves the actor at once, and waits for the end of its
standard input. Nothing of Hocket is imported before: there is such a process for each trial.
"""

import os
import sys

DONE = b"done"  # sent by an actor that has seen the end of its job


def main() -> int:
    """Wait for the actor to say that all is well, or to end."""
    if os.fork():
        os._exit(0)
    if os.read(0, len(DONE)):
        return 0
    from hocket.ray.submission import SubmissionError, SubmittedJob

    job, *home = sys.argv[1:]
    try:
        SubmittedJob(job, *home).stop()
    except SubmissionError as error:  # Most often it is over.
        print(f"hocket: job '{job}' of a trial that was killed is not stopped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
