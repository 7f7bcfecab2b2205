"""Sessions of the page: how a browser shows a token without keeping it.

A session has two halves. The cookie, which no script can read, is sent by the browser itself; but cookies do not know
ports, so that any server on the same host gets it. The proof is in the page's storage, which belongs to its origin,
port included, and the page sends it in a header. Only both together stand for a token (docs/decisions/0027).

Both are made with a key that follows from the home's token, and nothing is kept of a session: it survives restarts,
and ends when its token is revoked. Sessions that were signed out are kept beside the journal until they would expire.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from concurrent.futures import Future
from secrets import token_hex, token_urlsafe
from time import time
from typing import Any

import msgspec
from msgspec import Struct

from hocket.control.ports import DurableJournal, LiveExecutor
from hocket.model.event import Event
from hocket.model.snapshot import Snapshot
from hocket.service.tokens import Token, Tokens

LINK_S = 300.0  # for which a link can be used, once
SESSION_S = 7 * 86_400.0
_KIND = "signed-out page session"  # of the values in the journal
_MOST_LINKS = 100  # that were not used yet; the oldest gives way
_LONGEST_COOKIE = 8 << 10


class PageSession(Struct, frozen=True):
    """What a browser is given when it signs in."""

    cookie: str
    proof: str
    expires_s: float


class PageSessions:
    """Makes and checks them. For any thread."""

    def __init__(
        self,
        tokens: Tokens,
        journal: DurableJournal,
        executor: LiveExecutor,
        home_token: str,
        clock: Callable[[], float] = time,
    ) -> None:
        self._tokens, self._journal, self._executor, self._clock = tokens, journal, executor, clock
        self._key = hmac.digest(home_token.encode(), b"the page of hocket", "sha256")
        # Controllers of one machine share its cookies, and must not overwrite each other's.
        self.cookie_name = f"hocket_{hashlib.sha256(self._key).hexdigest()[:12]}"
        self._links: dict[str, tuple[Token, float]] = {}  # digest of the link → whose it is, and until when
        kept = journal.kept(_KIND).items()
        self._signed_out = {session: msgspec.json.decode(until, type=float) for session, until in kept}

    # -- to sign in ---------------------------------------------------------------------------------------------

    def make_link(self, token: Token) -> tuple[str, float]:
        """What signs a browser in as this token, once; and until when."""
        link, expires_s = token_urlsafe(32), self._clock() + LINK_S
        self._links[_digest(link)] = token, expires_s
        for oldest in list(self._links)[:-_MOST_LINKS]:
            self._links.pop(oldest, None)
        return link, expires_s

    def use_link(self, link: str) -> Token | None:
        """The token that a link was made for; None if it was used, is too old, or its token is no longer valid."""
        token, expires_s = self._links.pop(_digest(link), (None, 0.0))
        if token is None or self._clock() >= expires_s or not self._tokens.is_valid(token):
            return None
        return token

    def begin(self, token: Token) -> PageSession:
        """A session that stands for this token, as long as that is valid."""
        expires_s = self._clock() + SESSION_S
        if token.expires_s is not None:
            expires_s = min(expires_s, token.expires_s)
        content = f"{token_hex(8)}.{int(expires_s)}.{token.digest}"
        return PageSession(f"{content}.{self._sealed('cookie', content)}", self._sealed("proof", content), expires_s)

    def now_s(self) -> float:
        """The time that sessions expire by."""
        return self._clock()

    # -- for each request ---------------------------------------------------------------------------------------

    def find(self, cookies: bytes, proof: bytes) -> Token | None:
        """The token of a request with these headers; None without both halves of a session that is valid."""
        content = self._cookie_value(cookies)
        if not content or not hmac.compare_digest(self._sealed("proof", content).encode(), proof):
            return None
        session, expires_s, digest = content.split(".")
        if self._clock() >= int(expires_s) or session in self._signed_out:
            return None
        return self._tokens.of_digest(digest)

    def is_valid(self, cookies: bytes, proof: bytes) -> bool:
        """Is the session of a request that goes on for long still valid?"""
        return self.find(cookies, proof) is not None

    def end(self, cookies: bytes) -> Future[Any]:
        """Sign out the session of a request that was found valid; done when it is in the journal."""
        session, expires_s, _digest_of_token = self._cookie_value(cookies).split(".")
        now_s = self._clock()
        over = [other for other, until_s in self._signed_out.items() if until_s <= now_s]

        def make(_snapshot: Snapshot, _now_s: float) -> list[Event]:
            self._journal.keep(_KIND, {session: expires_s.encode(), **dict.fromkeys(over)})
            still = {other: until_s for other, until_s in self._signed_out.items() if other not in over}
            self._signed_out = {**still, session: float(expires_s)}
            return []

        return self._executor.post(make)

    def _cookie_value(self, cookies: bytes) -> str:
        """What the cookie among these says, if it is one of ours; else nothing."""
        if len(cookies) > _LONGEST_COOKIE:
            return ""
        for cookie in cookies.decode("latin-1").split(";"):
            name, _, value = cookie.strip().partition("=")
            content, _, seal = value.rpartition(".")
            if name == self.cookie_name and hmac.compare_digest(self._sealed("cookie", content), _ascii(seal)):
                return content
        return ""

    def _sealed(self, half: str, content: str) -> str:
        return hmac.digest(self._key, f"{half}:{content}".encode(), "sha256").hex()


def _ascii(text: str) -> str:
    return text if text.isascii() else ""


def _digest(link: str) -> str:
    return hashlib.sha256(link.encode(errors="replace")).hexdigest()
