"""Packs: models of one device that are trained in one step, and which of them are packed together."""
