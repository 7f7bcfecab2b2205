"""Ways to make one step of several models. Each says which models it can take; the others are stepped in turn."""
