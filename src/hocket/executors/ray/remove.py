"""`python -m hocket.executors.ray.remove ADDRESS NAMESPACE ACTOR`: gives back to Ray what an agent has left.

The agent's own actor cannot do that: with its placement group it would be killed, and Ray would restart it for ever.
"""

from __future__ import annotations

import sys

from hocket.executors.ray.connection import NoRay, connect


def main() -> int:
    """0 when nothing of it is left."""
    address, namespace, actor = sys.argv[1:]
    try:
        connect(address, namespace)
    except NoRay as error:
        print(error, file=sys.stderr)
        return 2
    from hocket.executors.ray.cluster import Cluster
    from hocket.executors.ray.node_changes import digests

    cluster = Cluster(namespace)
    ((which, _digest),) = digests([actor]).items()
    for group in cluster.groups():
        if (group.node, group.node_id) == which:
            cluster.remove(group)
    return 0


if __name__ == "__main__":
    sys.exit(main())
