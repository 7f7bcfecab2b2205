"""Several models trained on one device in one step, each as if it were alone. `hocket.pack` is the public API."""
