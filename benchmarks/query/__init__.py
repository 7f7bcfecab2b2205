"""Progressive queries, measured: `python -m benchmarks.query` lists the measurements."""
