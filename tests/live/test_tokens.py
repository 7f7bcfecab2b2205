"""Tokens by role, as their users meet them: made, used from the command line and by an agent, revoked, kept."""

import json
import os
import stat
from pathlib import Path

import pytest
from tests.live.agent import LiveAgent
from tests.live.controller import LiveController, awaited


def create(controller: LiveController, name: str, *options: str) -> str:
    return str(controller.types("token", "create", name, *options).stdout.strip())


@pytest.mark.slow
def test_users_and_agents_work_with_tokens_of_their_own_until_those_are_revoked(tmp_path: Path) -> None:
    agent_token = tmp_path / "agent-token"
    with LiveController(tmp_path, "--no-agent") as controller:
        controller.begin()
        agent_token.write_text(create(controller, "n1", "--role", "agent", "--node", "n1"))
        with LiveAgent(controller, "n1", "--gpus", "1", token=agent_token) as agent:
            agent.begin()
            ana = create(controller, "ana-laptop", "--role", "user", "--owner", "ana", "--expires", "30d")
            bob = create(controller, "bob", "--role", "user", "--owner", "bob")
            by_ana = {"HOCKET_TOKEN": ana}
            controller.types("submit", "-n", "a", "--wait", "--", "echo", "printed by ana", **by_ana)
            assert "printed by ana" in controller.types("logs", "a", **by_ana).stdout
            assert "token 'bob' is of owner 'bob'" in controller.types("logs", "a", HOCKET_TOKEN=bob, code=2).stderr
            assert controller.jobs()["a"]["owner"] == "ana"
            said = controller.types("submit", "--owner", "bob", "--", "true", code=2, **by_ana).stderr
            assert said == (
                "hocket: token 'ana-laptop' is of owner 'ana', and the job's owner must be that or empty, not 'bob'\n"
            )
            assert "needs admin" in controller.types("down", code=2, **by_ana).stderr
            who = controller.types("token", "whoami", HOCKET_HOME="/nowhere", HOCKET_URL=controller.url, **by_ana)
            assert who.stdout.startswith("ana-laptop: user of owner 'ana', expires ")

            controller.kill()
            controller.begin()
            agent.await_up()
            listed = json.loads(controller.types("token", "list", "--json").stdout)["tokens"]
            assert [(t["name"], t["role"]) for t in listed] == [
                ("ana-laptop", "user"),
                ("bob", "user"),
                ("n1", "agent"),
            ]
            table = controller.types("token", "list").stdout
            assert "ana-laptop" in table
            assert "until it is revoked" in table
            wrong = controller.types("token", "create", "x", "--role", "user", code=2).stderr
            assert wrong == "hocket: token 'x': role user needs owner, and none is given\n"
            wrong = controller.types("token", "create", "x", "--role", "read", "--expires", "?", code=2).stderr
            assert "--expires" in wrong
            assert controller.types("jobs", "--all", **by_ana).stdout.count("ana") >= 1
            for name in ("ana-laptop", "n1"):
                assert controller.types("token", "revoke", name).stdout == f"{name} is revoked\n"
            refused = controller.types("jobs", code=2, **by_ana).stderr
            assert "does not accept the token in HOCKET_TOKEN" in refused
            awaited(lambda: not agent.lives, "the agent ends, for its token is valid no more")
            assert "does not take the token" in agent.log.read_text()
        for token in (ana, bob, agent_token.read_text()):
            for path in controller.home.rglob("*"):
                assert not path.is_file() or token.encode() not in path.read_bytes(), path
        journal = os.stat(controller.home / "journal.db")
        assert stat.S_IMODE(journal.st_mode) == 0o600
