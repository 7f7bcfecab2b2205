"""The secrets of jobs: encrypted beside the journal from a job's submission until it is over (docs/decisions/0021).

A job has only the names of its secrets. All methods are for the controller's thread, as the journal is.
"""

from __future__ import annotations

import logging
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Iterable, Mapping
from pathlib import Path

import msgspec

from hocket.control.journal import JournalError
from hocket.control.ports import DurableJournal, SecretsLost
from hocket.model.job import Job
from hocket.service.record import Record

_log = logging.getLogger("hocket.service")
KIND = "secret"  # of the values in the journal
_KEY_BYTES = 32
_NONCE_BYTES = 12


class KeyFile:
    """The key that secrets are encrypted with: a file of its owner's alone, made when it is first needed."""

    def __init__(self, path: Path, write: Callable[[Path, str], None]) -> None:
        """`write` replaces a file as a whole, with mode 0600."""
        self._path, self._write = path, write

    def make(self) -> bytes:
        """The key, a new one if there is none. Raises SecretsLost."""
        if not self._path.exists():
            try:
                self._write(self._path, b64encode(os.urandom(_KEY_BYTES)).decode())
            except OSError as error:
                raise SecretsLost(f"the key of secrets '{self._path}' cannot be written: {error.strerror}") from error
        return self.read()

    def read(self) -> bytes:
        """The key. Raises SecretsLost."""
        try:
            key = b64decode(self._path.read_bytes(), validate=True)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is damaged"
            raise SecretsLost(f"the key of secrets '{self._path}' cannot be read: {why}") from error
        if len(key) != _KEY_BYTES:
            raise SecretsLost(f"the key of secrets '{self._path}' must have {_KEY_BYTES} bytes, and has {len(key)}")
        return key


class SecretStore:
    """Secrets by job."""

    def __init__(self, journal: DurableJournal, key: KeyFile) -> None:
        self._journal, self._key = journal, key
        self._jobs = set(journal.kept(KIND))  # that have some

    def keep(self, secrets: Mapping[str, Mapping[str, str]]) -> None:
        """Keep these, by job and name, before the jobs are in the journal. Raises JournalError or SecretsLost."""
        if secrets:
            key = self._key.make()
            self._journal.keep(KIND, {job: _encrypted(key, job, values) for job, values in secrets.items()})
            self._jobs.update(secrets)

    def of(self, job: Job) -> dict[str, str]:
        """The secrets of a job that is to start. Raises SecretsLost."""
        try:
            found = self._journal.kept(KIND, job.id).get(job.id)
            if found is None:
                raise SecretsLost("they are not kept here")
            return _decrypted(self._key.read(), job.id, found)
        except (SecretsLost, JournalError) as error:
            raise SecretsLost(f"its secrets cannot be had, so that it must be submitted again: {error}") from error

    def drop_ended(self, changed: Iterable[Record]) -> None:
        """Drop the secrets of those of these jobs that have ended."""
        self.drop([record.job.id for record in changed if record.ended_s is not None])

    def sweep(self, live: Container[str]) -> None:
        """Drop what a controller left that was killed: secrets of jobs that are over, or never were."""
        self.drop([job for job in self._jobs if job not in live])

    def drop(self, jobs: Iterable[str]) -> None:
        """Keep nothing of these; what cannot be removed now is when the controller starts again."""
        gone = [job for job in jobs if job in self._jobs]
        if not gone:
            return
        try:
            self._journal.keep(KIND, dict.fromkeys(gone))
            self._jobs.difference_update(gone)
        except JournalError as error:
            _log.warning("secrets of %d jobs that are over could not be removed yet: %s", len(gone), error)


def _encrypted(key: bytes, job: str, values: Mapping[str, str]) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_BYTES)
    # Bound to the job: what is kept for one cannot be put in the place of another's.
    return nonce + AESGCM(key).encrypt(nonce, msgspec.json.encode(dict(values)), _context(job))


def _decrypted(key: bytes, job: str, kept: bytes) -> dict[str, str]:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        plain = AESGCM(key).decrypt(kept[:_NONCE_BYTES], kept[_NONCE_BYTES:], _context(job))
    except (InvalidTag, ValueError) as error:
        raise SecretsLost("they were encrypted with another key, or are damaged") from error
    return msgspec.json.decode(plain, type=dict[str, str])


def _context(job: str) -> bytes:
    return b"hocket secrets of job " + job.encode(errors="surrogatepass")
