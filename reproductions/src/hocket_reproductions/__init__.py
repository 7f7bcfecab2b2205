"""Evaluations of papers, run again by `hocket reproduce`. Each paper is one module or folder with a `REPRODUCTION`."""
