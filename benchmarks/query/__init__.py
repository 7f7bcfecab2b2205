"""Benchmarks of progressive queries."""
