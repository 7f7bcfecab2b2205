"""Tokens: what a caller of the API shows, its role, and for whom it speaks.

The home's own token is an admin's and is not listed. Others are made and revoked by admins and kept beside the journal,
so that a controller that takes the journal over knows them too (docs/decisions/0020).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum
from fnmatch import fnmatchcase
from secrets import compare_digest, token_urlsafe
from time import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from hocket.control.ports import DurableJournal, LiveExecutor
from hocket.model.event import Event
from hocket.model.job import NAME_LENGTH
from hocket.model.snapshot import Snapshot
from hocket.model.validation import explained

KIND = "token"  # of the values in the journal
HOME = "home"  # the name of the token in the home folder
_PREFIX = "hkt_"  # by which tools that look for secrets in files find one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Role(StrEnum):
    """What a caller may do; `permissions.py` says which calls that are."""

    ADMIN = "admin"  # everything
    USER = "user"  # submits jobs of one owner, and sees and changes those
    AGENT = "agent"  # lends one node, or those whose name matches a pattern
    READ = "read"  # sees jobs, nodes and owners, and changes nothing


class Token(Struct, frozen=True):
    """A token as it is kept: the token itself is not, only its digest."""

    name: str
    role: Role
    digest: str  # SHA-256, in hexadecimal
    owner: str = ""  # of a user
    node: str = ""  # of an agent: a name, or a pattern such as gpu-* or *
    created_s: float = 0.0
    expires_s: float | None = None  # None: never

    @property
    def is_admin(self) -> bool:
        """May it do everything?"""
        return self.role is Role.ADMIN

    def owns(self, owner: str) -> bool:
        """May it see all of a job of this owner, and change it?"""
        return self.is_admin or (self.role is Role.USER and self.owner == owner)

    def may_lend(self, node: str) -> bool:
        """May it speak as the agent of this node?"""
        return self.is_admin or (self.role is Role.AGENT and fnmatchcase(node, self.node))


def token_row(token: Token) -> dict[str, Any]:
    """A token as users see it."""
    found = asdict(token)
    del found["digest"]
    return found


class TokenSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What an admin says of a new token."""

    name: Annotated[str, Meta(min_length=1, max_length=64, description="by which it is listed and revoked")]
    role: Role
    owner: Annotated[str, Meta(max_length=NAME_LENGTH, description="whose jobs; for the role user")] = ""
    node: Annotated[str, Meta(max_length=NAME_LENGTH, description="a node's name or gpu-*; for the role agent")] = ""
    expires_in_s: Annotated[float, Meta(gt=0, le=1e10, description="null: never")] | None = None


class TokenError(ValueError):
    """What was said of a token breaks a rule."""


class UnknownToken(TokenError):
    """There is no token of that name."""


def read_token_spec(body: bytes) -> TokenSpec:
    """The token that a call asks for. Raises TokenError."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TokenError(f"the body must be JSON: {error}") from error
    if not isinstance(given, dict):
        raise TokenError(f"the body must be an object with {', '.join(TokenSpec.__struct_fields__)}")
    try:
        spec = msgspec.convert(given, TokenSpec)
    except msgspec.ValidationError as error:
        raise TokenError(explained(error, given, TokenSpec.__struct_fields__)) from error
    if _NAME.fullmatch(spec.name) is None or spec.name == HOME:
        raise TokenError(
            f"name must be letters, digits, '.', '_' and '-', begin with a letter or digit, and not be '{HOME}', "
            f"not '{spec.name}'"
        )
    for role, field, value in ((Role.USER, "owner", spec.owner), (Role.AGENT, "node", spec.node)):
        if value and spec.role is not role:
            raise TokenError(f"token '{spec.name}': {field} '{value}' is for role {role}, and its role is {spec.role}")
        if not value and spec.role is role:
            raise TokenError(f"token '{spec.name}': role {role} needs {field}, and none is given")
    return spec


class Tokens:
    """The tokens that are valid. `create` and `revoke` are for any thread, as is `find`."""

    def __init__(
        self, journal: DurableJournal, executor: LiveExecutor, home_token: str, clock: Callable[[], float] = time
    ) -> None:
        self._journal, self._executor, self._clock = journal, executor, clock
        self._home = Token(HOME, Role.ADMIN, _digest(home_token.encode()))
        found = (msgspec.json.decode(value, type=Token) for value in journal.kept(KIND).values())
        self._by_digest: dict[str, Token] = {token.digest: token for token in found}  # replaced as a whole

    def find(self, shown: bytes) -> Token | None:
        """The token of a call that shows this; None if it is none, was revoked, or has expired."""
        return self.of_digest(_digest(shown))

    def of_digest(self, digest: str) -> Token | None:
        """The token of this digest, if it is valid."""
        token = self._home if compare_digest(digest, self._home.digest) else self._by_digest.get(digest)
        if token is None or not compare_digest(digest, token.digest) or self._has_expired(token):
            return None
        return token

    def is_valid(self, token: Token) -> bool:
        """Is a token that was found before still valid?"""
        is_known = token is self._home or token.digest in self._by_digest
        return is_known and not self._has_expired(token)

    def listed(self) -> list[Token]:
        """All but that of the home, by name."""
        return sorted(self._by_digest.values(), key=lambda token: token.name)

    def create(self, spec: TokenSpec) -> tuple[str, Future[Any]]:
        """A new token, and what is done with the Token when it is kept; TokenError if its name is taken."""
        secret = _PREFIX + token_urlsafe(32)
        now_s = self._clock()
        expires_s = None if spec.expires_in_s is None else now_s + spec.expires_in_s
        token = Token(spec.name, spec.role, _digest(secret.encode()), spec.owner, spec.node, now_s, expires_s)

        def make(_snapshot: Snapshot, _now_s: float) -> list[Event]:
            if self._named(spec.name) is not None:
                raise TokenError(f"there is a token '{spec.name}' already; revoke it first, or say another name")
            self._journal.keep(KIND, {spec.name: msgspec.json.encode(token)})
            self._by_digest = self._by_digest | {token.digest: token}
            return []

        return secret, self._executor.post(make, lambda _refused: token)

    def revoke(self, name: str) -> Future[Any]:
        """Done when it is valid no more, and never will be; UnknownToken if there is none of that name."""

        def make(_snapshot: Snapshot, _now_s: float) -> list[Event]:
            token = self._named(name)
            if token is None:
                raise UnknownToken(f"there is no token '{name[:200]}'; see `hocket token list`")
            self._by_digest = {digest: t for digest, t in self._by_digest.items() if t is not token}
            self._journal.keep(KIND, {name: None})
            return []

        return self._executor.post(make)

    def _named(self, name: str) -> Token | None:
        return next((token for token in self._by_digest.values() if token.name == name), None)

    def _has_expired(self, token: Token) -> bool:
        return token.expires_s is not None and self._clock() >= token.expires_s


def _digest(token: bytes) -> str:
    # One round is enough: a token is 256 random bits, which cannot be guessed however fast the hash is. A slow hash is
    # for passwords that people think of, and each call would pay for it.
    return hashlib.sha256(token).hexdigest()
