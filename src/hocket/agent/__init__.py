"""What runs beside the jobs on each machine: node agent, sidecar, warm start, progress readers."""
