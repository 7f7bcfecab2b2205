"""What a job and the agent of its node say to each other about phase tokens, one message in each packet.

A job holds the CPU token of its host while it computes (COMP), and the primary or the secondary network token while it
communicates (COMM), so that the phases of several jobs on the same host take turns. The agent hands the tokens out
(`agent/phase_token_rules.py`), the job asks for them (`runtimes/paramserver/phase_tokens.py`).

Where the secondary COMM has to wait is not said in messages, which would cost more than a chunk: the primary writes
into a small file beside the socket when it last moved a chunk (`ACTIVITY`), and the secondary reads it. So do the other
hosts of a job, which ask for no network tokens: of two COMMs the one that has had its token for longer goes first.
"""

from __future__ import annotations

import struct
from enum import StrEnum

import msgspec
from msgspec import Struct

VARIABLE = "HOCKET_PHASE_TOKENS"  # of a job's environment: the path of the agent's socket
ACTIVITY_SUFFIX = ".activity"  # of the path of that file
# When the COMM that goes first last moved a chunk, and how long its chunks take: nanoseconds of the monotonic clock,
# which all processes of a machine share. 0: it communicates no more. Last, since when it has its token.
ACTIVITY = struct.Struct("=qqq")


class Phase(StrEnum):
    """What a part of an iteration needs: the CPU, or the network (PULL and PUSH)."""

    COMP = "comp"
    COMM = "comm"


class PhaseToken(StrEnum):
    """What is held during a phase; each exists once on a host."""

    CPU = "cpu"
    PRIMARY = "primary"  # of the network
    SECONDARY = "secondary"  # uses what the primary leaves of the network


# -- what a job says ----------------------------------------------------------------------------------------


class JoinTurns(Struct, frozen=True, tag="join"):
    """First of all: which run of which job it is. A connection that the job had before is closed."""

    job: str
    run: int


class AskToken(Struct, frozen=True, tag="ask"):
    """It waits for a token. The job numbers what it asks for."""

    number: int
    phase: Phase


class ReleaseToken(Struct, frozen=True, tag="release"):
    """Its phase has ended. This is not answered."""

    number: int


class IterationMeasured(Struct, frozen=True, tag="measured"):
    """How long the phases of an iteration took, waiting for tokens apart."""

    iteration: int
    pull_s: float
    comp_s: float
    push_s: float
    sending_s: float | None = None  # for so long its host had something on its way to others; None: not measured
    meeting_s: float = 0.0  # on its first host: what it took all to go on from where the last of them had come to


class AreYouThere(Struct, frozen=True, tag="are-you-there"):
    """It has waited for long, and asks whether the agent still listens."""


# -- what the agent says ------------------------------------------------------------------------------------


class TokenGranted(Struct, frozen=True, tag="granted"):
    """The answer to `AskToken`."""

    number: int
    token: PhaseToken
    is_short: bool = False  # a secondary COMM that need not give way: it is short beside the primary one
    since_ns: int = 0  # of a network token: now, by the clock of this host; no two of an agent have the same


class TokenPromoted(Struct, frozen=True, tag="promoted"):
    """The primary COMM has ended: this secondary one is the primary now."""

    number: int


class TokenLost(Struct, frozen=True, tag="lost"):
    """It was held for too long, and is with another job now."""

    number: int


class LeaveGroup(Struct, frozen=True, tag="leave"):
    """The job is to leave its group at the end of this iteration."""


class TurnsReplaced(Struct, frozen=True, tag="replaced"):
    """Another process joined for this job: this one goes on without tokens."""


class HereIAm(Struct, frozen=True, tag="here-i-am"):
    """The answer to `AreYouThere`."""


FromJob = JoinTurns | AskToken | ReleaseToken | IterationMeasured | AreYouThere
FromAgent = TokenGranted | TokenPromoted | TokenLost | LeaveGroup | TurnsReplaced | HereIAm

LONGEST_MESSAGE = 4096  # bytes
encode = msgspec.json.Encoder().encode
decode_from_job = msgspec.json.Decoder(FromJob).decode
decode_from_agent = msgspec.json.Decoder(FromAgent).decode
