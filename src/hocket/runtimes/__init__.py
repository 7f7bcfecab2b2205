"""What jobs run: runtimes that know nothing of each other, nor of who decides about them."""
