"""The parameter-server runtime, measured: its kernels, and what PULL and PUSH cost."""
