"""Runtimes: code that runs inside jobs. They do not import each other, or any code that decides."""
