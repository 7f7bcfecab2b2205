"""Harmony: jobs whose phases complement each other share groups of whole machines."""
