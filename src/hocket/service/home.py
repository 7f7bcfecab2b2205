"""The folder of a controller: where it listens, its token, its journal, its agent's folder, its log."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_urlsafe

DEFAULT = "~/.hocket"


class Home:
    """A controller's folder, readable by its owner only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).expanduser().absolute()

    def make(self) -> None:
        """Make it if it is missing, with a token."""
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"home '{self.path}' must be a folder, and is a file")
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.path, 0o700)
        if not self.token_file.exists():
            self.write(self.token_file, token_urlsafe(32))

    @property
    def token_file(self) -> Path:
        """The token that every call carries."""
        return self.path / "token"

    @property
    def token(self) -> str:
        """The token itself."""
        return self.token_file.read_text().strip()

    @property
    def url_file(self) -> Path:
        """Where the controller listens."""
        return self.path / "url"

    @property
    def journal(self) -> Path:
        """Its journal, unless a store is named."""
        return self.path / "journal.db"

    @property
    def archive(self) -> Path:
        """Where old cycles of its journal go, unless a folder is named."""
        return self.path / "journal-archive"

    @property
    def journal_mark(self) -> Path:
        """The name of the journal that this home has had jobs in, so that a missing journal is noticed."""
        return self.path / "journal.name"

    def had_journal(self, name: str) -> bool:
        """Whether a controller of this home has written to that journal."""
        try:
            return self.journal_mark.read_text() == name
        except OSError:
            return False

    @property
    def catalogue(self) -> Path:
        """What became of its jobs; made of the journal, and made anew if it is missing."""
        return self.path / "catalogue.db"

    @property
    def history(self) -> Path:
        """States on the way through the journal; made of it, and made anew if it is missing."""
        return self.path / "history.db"

    @property
    def agent(self) -> Path:
        """The folder of the agent on this machine."""
        return self.path / "agent"

    @property
    def log(self) -> Path:
        """The log of the agent, and of a controller in the background; when it is full, it becomes `log.1`."""
        return self.path / "log"

    @property
    def ray_head(self) -> Path:
        """Which Ray the controller has started on this machine, with its token beside it."""
        return self.path / "ray_head.json"

    @property
    def bundles(self) -> Path:
        """Working directories that came with jobs."""
        return self.path / "bundles"

    @property
    def notified_file(self) -> Path:
        """How far notifications are sent."""
        return self.path / "notified.json"

    @property
    def clock_file(self) -> Path:
        """The file that says by how much the controller's clock differs from the time since the machine booted."""
        return self.path / "clock.json"

    @property
    def secrets_key(self) -> Path:
        """The key that the secrets of jobs are encrypted with; made when the first is submitted."""
        return self.path / "secrets.key"

    @property
    def controllers_file(self) -> Path:
        """Where controllers of the same journal are called, one a line; clients ask there if this one is gone."""
        return self.path / "controllers"

    def tell_controllers(self, urls: tuple[str, ...]) -> None:
        """Keep where controllers of the same journal are called, if that has changed."""
        text = "".join(f"{url}\n" for url in urls)
        with suppress(OSError):  # On a full disk, clients ask where they asked before.
            before = self.controllers_file.read_text() if self.controllers_file.exists() else ""
            if text != before:
                self.write(self.controllers_file, text)

    @property
    def ca_file(self) -> Path:
        """The certificates by which clients of this folder know the controller, if it has one."""
        return self.path / "ca.pem"

    def trust(self, ca: str | None) -> None:
        """Keep a copy of certificates that clients are to trust, or none. Raises OSError."""
        if ca is None:
            self.ca_file.unlink(missing_ok=True)
        else:
            self.write(self.ca_file, Path(ca).expanduser().read_text())

    def last_port(self) -> int:
        """The port it listened on last, so that an agent that lives on finds it again; 0 for any."""
        try:
            return int(self.url_file.read_text().strip().rsplit(":", 1)[1])
        except (OSError, ValueError, IndexError):
            return 0

    def write(self, path: Path, text: str) -> None:
        """Replace a file as a whole, readable by its owner only."""
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(fd, "w") as file:
            file.write(text)
        os.rename(part, path)

    def sweep(self) -> None:
        """Remove what a controller left that was killed as it wrote."""
        # The folder may be a user's own.
        files = (self.token_file, self.url_file, self.controllers_file, self.ca_file, self.notified_file)
        for whole in (*files, self.journal_mark, self.clock_file, self.secrets_key):
            for part in self.path.glob(f"{whole.name}.*.part"):
                if part.name[len(whole.name) + 1 : -len(".part")].isdecimal():
                    part.unlink(missing_ok=True)
