"""Where actions come true. Siblings never import each other."""
