"""Packs: models of one device that are trained in one step, and who is packed with whom."""
