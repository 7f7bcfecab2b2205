"""Parameters that several policies have."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from hocket.policies.registry import Params

_ByPriority = Annotated[bool, Meta(description="whether a job of higher priority goes first")]


class PriorityParams(Params, frozen=True):
    """For policies that put jobs of higher priority first."""

    priority: _ByPriority = True

    before: ClassVar[dict[str, Any]] = {"priority": False}


class ElasticParams(Params, frozen=True):
    """For policies that lend idle GPUs to elastic jobs (`lent_gpus.py`)."""

    lend: Annotated[
        bool, Meta(description="whether elastic jobs grow into idle GPUs, and shrink when a waiting job needs them")
    ] = True

    restart_s: Annotated[
        float, Meta(ge=0, description="what a restart is taken to cost a job of which that is not known, in seconds")
    ] = 30.0

    before: ClassVar[dict[str, Any]] = {"lend": False}


class EverydayParams(ElasticParams, frozen=True):
    """For policies that do both."""

    priority: _ByPriority = True

    before: ClassVar[dict[str, Any]] = PriorityParams.before | ElasticParams.before
