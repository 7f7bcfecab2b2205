"""Modes to step several models. Each says which models it can take; the others are stepped one by one."""
