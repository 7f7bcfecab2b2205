"""`python -m hocket` is `hocket`."""

from hocket.cli.main import run

if __name__ == "__main__":
    run()
