"""Benchmarks of `hocket query`."""
