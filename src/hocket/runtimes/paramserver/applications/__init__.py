"""Algorithms that come with the runtime, with the data that they are computed on."""
