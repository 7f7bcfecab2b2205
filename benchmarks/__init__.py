"""Measured, side by side in one run: `python -m benchmarks`, or `make bench`.

Nothing here is asserted. A number is printed with the command that made it, the machine's size and the date.
"""
