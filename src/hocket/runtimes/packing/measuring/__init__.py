"""Packed training measured against training in turn: for the reproduction of the paper and for our benchmarks."""
