"""The options of `hocket up` by which a learned policy takes over from MLF-H."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli.terminal.errors import InputError, refusing

if TYPE_CHECKING:
    from hocket.policies.registry import BoundPolicy
    from hocket.service.home_settings import Settings
    from hocket.service.policy_switch import SwitchOptions

SwitchTo = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY|none",
        help="Let mlf_h decide until this learned policy (mlf_rl) is at least as good on this home's own past, then "
        "it; and back if it falls behind. Remembered.",
    ),
]
JudgeEvery = Annotated[
    str | None, typer.Option(metavar="TIME", help="With --switch-to: how often it is judged; 1d at first. Remembered.")
]
JudgeOver = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="With --switch-to: by how much of the past; 14d at first. Remembered."),
]


def switch_setting(text: str) -> str:
    """The learned policy as it is kept, whatever the next start's working directory is; empty for `none`."""
    if text == "none":
        return ""
    from hocket.cli.policy_text import bound_policy
    from hocket.policies.mlfs.weights_file import SHIPPED, read_weights

    with refusing():
        bound = bound_policy(text)
        name, path = bound.policy.name, bound.settings.get("weights_file")
        if name not in SHIPPED:
            raise InputError(f"--switch-to must be a policy that learns ({', '.join(SHIPPED)}) or none, not '{name}'")
        read_weights(Path(path) if path else SHIPPED[name], name)
    return text.replace(str(path), str(Path(path).resolve()), 1) if path else text


def switch_options(settings: Settings, policy: BoundPolicy | None) -> SwitchOptions | None:
    """How the controller switches, if it does; `policy` is what --policy names."""
    if not settings.switch_to:
        return None
    from hocket.cli.policy_text import bound_policy
    from hocket.service.policy_switch import USUAL, SwitchOptions

    learned = bound_policy(settings.switch_to)
    name = learned.policy.name
    if policy is not None and policy.policy.name not in (USUAL, name):
        raise InputError(
            f"--switch-to is between {USUAL} and {name}: --policy must be one of them, not '{policy.policy.name}'; "
            "`--switch-to none` switches no more"
        )
    usual = learned.policy.bound().settings
    given = {key: value for key, value in learned.settings.items() if value != usual[key]}
    return SwitchOptions(name, given, settings.judge_every_s, settings.judge_over_s)
