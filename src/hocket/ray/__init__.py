"""From a Ray program to Hocket: submit functions and commands as jobs of the controller that shares the cluster.

    from hocket.ray import submit

    job = submit(train, 0.1, name="net", gpus="1-4", pip=["einops"])
    job.wait()

It needs Ray only for functions, which are sent along with `cloudpickle`. `hocket.ray.train` runs scripts of Ray Train.
"""

from hocket.ray.submission import SubmissionError, SubmittedJob, submit

__all__ = ["SubmissionError", "SubmittedJob", "submit"]
