"""Commands that simulate, compare and explain policies."""
