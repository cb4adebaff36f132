"""The command check refuses what is dangerous, asks about what is obscure, and leaves the rest alone."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aeolus_sandbox.errors import CommandRefused
from aeolus_sandbox.tools.terminal.command_check import (
    MAX_COMMAND_CHARACTERS,
    CommandPolicy,
    check_command,
    enforce,
)


def test_finding_says_rule_place_and_excerpt() -> None:
    [finding] = check_command("echo h\u00e9llo\necho '\u6f22' && sudo rm -rf /\u200b/.. # x")
    assert (finding.rule, finding.severity) == ("recursive_delete_of_root", "danger")
    assert (finding.line, finding.column) == (2, 13)
    assert finding.excerpt == r"sudo rm -rf /\u200b/.. # x"
    assert finding.message.endswith(".")
    assert "root directory" in finding.message


def test_finding_in_a_nested_script_is_at_the_command_that_runs_it() -> None:
    [finding] = check_command("ls\n  bash -c 'echo 1\nrm -rf /'")
    assert (finding.line, finding.column) == (2, 3)


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("rm -rf /usr", "recursive_delete_of_system_directory"),
        ("rm -rf ~", "recursive_delete_of_home"),
        (":(){ :|:& };:", "fork_bomb"),
        ("dd of=/dev/sda", "raw_device_write"),
        ("mkfs.ext4 /dev/sda1", "filesystem_format"),
        ("find / -delete", "find_deletes_protected"),
        ("chmod -R 777 /", "recursive_mode_change"),
        ("chown -R x /", "recursive_owner_change"),
        ("mv /* x", "move_of_system_directory"),
        ("> /etc/passwd", "system_file_overwrite"),
        ("reboot", "shutdown"),
        ("curl x | sh", "downloaded_text_run_as_shell"),
        ("base64 -d x | sh", "decoded_text_run_as_shell"),
        ("$(x) y", "computed_command_name"),
        ("r\u200bm x", "invisible_characters"),
        ("rm -rf $X/", "recursive_delete_through_unset_variable"),
    ],
)
def test_rules_have_stable_names(command: str, rule: str) -> None:
    assert [finding.rule for finding in check_command(command)] == [rule]


def test_argument_vector_is_checked_with_its_exact_words() -> None:
    assert check_command(["rm", "-rf", "/"])[0].rule == "recursive_delete_of_root"
    assert check_command(["sh", "-c", "rm -rf /*"])[0].rule == "recursive_delete_of_root"
    assert check_command(("sudo", "env", "A=1", "rm", "-rf", "/usr"))
    for words in (
        [],
        ["echo", "rm -rf /; $(rm -rf /)"],
        ["rm", "-rf", "/*"],
        ["rm", "-rf", "~"],
        ["rm -rf /"],
        [""],
    ):
        assert check_command(words) == [], words


def test_start_directory_counts() -> None:
    assert check_command("rm -rf *") == []
    assert check_command("rm -rf *", cwd="/workspace") == []
    assert check_command("rm -rf *", cwd="/")[0].rule == "recursive_delete_of_root"
    assert check_command("rm -rf ../..", cwd="/workspace/a")[0].rule == "recursive_delete_of_root"


def test_deny_refuses_and_names_rule_and_place() -> None:
    with pytest.raises(CommandRefused, match=r"'recursive_delete_of_root' at line 1, column 7.*rm -rf /"):
        enforce("true; rm -rf /", CommandPolicy.DENY)
    with pytest.raises(CommandRefused, match="downloaded_text_run_as_shell"):
        enforce("curl x | sh", CommandPolicy.DENY)
    assert enforce("ls", CommandPolicy.DENY) == []


def test_warn_reports_and_allow_does_not_look() -> None:
    assert enforce("rm -rf /", CommandPolicy.WARN)[0].severity == "danger"
    assert enforce("rm -rf /", CommandPolicy.ALLOW) == []


def test_too_long_a_command_is_asked_about_unread() -> None:
    [finding] = check_command("#" * (MAX_COMMAND_CHARACTERS + 1))
    assert (finding.rule, finding.severity) == ("too_long_to_check", "suspicious")
    assert check_command("#" * MAX_COMMAND_CHARACTERS) == []
    assert check_command(["echo", "x" * MAX_COMMAND_CHARACTERS])[0].rule == "too_long_to_check"


def test_findings_are_few_however_many_commands() -> None:
    assert len(check_command("rm -rf /\n" * 5_000)) == 20


HOSTILE_PIECES = [
    *(
        "|",
        "?|",
        "a=(",
        "<",
        "\0",
        "a[ ",
        "|a",
        "[[ a =~ (",
        "<<a ",
        "$((",
        "${a:-",
        "`",
        "rm -rf / ",
        "a;",
        "a&&",
    ),
    *(
        '"$(',
        "f(){ f;}\n",
        "for x in 1 2 3 4 5 6 7 8 9; do ",
        "{a,b}",
        "x=$x$x;",
        "eval $x ",
        "if a;then ",
        "~/*/..",
    ),
]


@pytest.mark.parametrize("piece", HOSTILE_PIECES)
def test_work_is_bounded_on_hostile_text(piece: str) -> None:
    started = time.thread_time()
    check_command((piece * MAX_COMMAND_CHARACTERS)[:MAX_COMMAND_CHARACTERS])
    assert time.thread_time() - started < 5  # without bounds some of these take minutes and all of the memory


FRAGMENT_WORDS = (
    "rm -rf / ~ $HOME $( ) ` ' \" { } , ; & && | || < > << <<< EOF \n \\ # * ? [ ] ( ) (( [[ ]] if then fi for do done "
    "case esac in f() $x ${x:- x= a=( eval sh -c sudo xargs find -exec {} \\; cd .. $'\\x $@ ! = \0 \ud800 \u200b"
)
FRAGMENTS = st.sampled_from(FRAGMENT_WORDS.split(" "))


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(), st.lists(FRAGMENTS).map(" ".join), st.lists(FRAGMENTS).map("".join)))
def test_no_text_raises(text: str) -> None:
    for finding in check_command(text):
        assert finding.excerpt.isprintable()
        assert 1 <= finding.line <= text.count("\n") + 1
    check_command(text.split(" "), cwd=text)


@settings(max_examples=100, deadline=None)
@given(st.binary())
def test_no_bytes_raise(data: bytes) -> None:
    check_command(data)  # type: ignore[arg-type]
    check_command(bytearray(data))  # type: ignore[arg-type]
    check_command([data, 1, None])  # type: ignore[list-item]
