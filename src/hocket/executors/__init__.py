"""Where actions are carried out. Siblings never import each other."""
