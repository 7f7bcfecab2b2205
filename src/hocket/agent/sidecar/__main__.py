"""`python -m hocket.agent.sidecar RUN_FOLDER`: run one attempt of a job."""

import sys

from hocket.agent.sidecar import main

sys.exit(main())
