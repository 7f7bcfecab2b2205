"""Targets of notifications: http and https URLs, and command lines."""

import pytest

from hocket.model.notify_target import is_url, shown_target, target_problem


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("https://hooks.example.org/services/T0/secret", "https://hooks.example.org/…"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/?key=1", "http://[::1]:8080/…"),
        ("mail -s 'a job' ann@example.org", "mail"),
        ("curl https://example.org/x", "curl"),
    ],
)
def test_a_log_names_a_target_without_what_may_be_secret(target: str, shown: str) -> None:
    assert target_problem(target) == ""
    assert shown_target(target) == shown


@pytest.mark.parametrize(
    "target",
    [
        "ftp://example.org/x", "file:///etc/passwd", "https://", "http:///x", "https://ann:word@example.org/",
        "https://example.org/a b", "https://example.org:x/", "HTTPS://example.org é", "", "  ", "''", "mail 'ann",
        "a\nb", "https://ä.example.org/",
    ],
)  # fmt: skip
def test_other_targets_are_refused(target: str) -> None:
    assert repr(target) in target_problem(target)


def test_a_command_with_a_url_is_a_command() -> None:
    assert is_url("https://example.org")
    assert not is_url("curl https://example.org")
