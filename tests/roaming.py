"""Do tests roam? By rule they draw the same few examples each time: a commit is red for what it changed."""

import os

ROAMS = bool(os.environ.get("HOCKET_ROAM"))  # Then they draw many more, others each time, and shrink what they find.
