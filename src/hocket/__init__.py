"""Hocket shares one cluster, or one machine, among many training jobs and progressive queries."""

__version__ = "0.1.0"
