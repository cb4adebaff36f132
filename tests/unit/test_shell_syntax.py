"""A shell command becomes plain data, whatever its text is, and without boundless work."""

import threading

import pytest

from aeolus_sandbox.tools.terminal.shell_syntax import MAX_NESTING, Meter, ParsingTooCostly, parse
from aeolus_sandbox.tools.terminal.shell_tree import (
    Background,
    Block,
    Command,
    Function,
    Loop,
    Pipeline,
    Redirected,
    Script,
    Substitution,
    Text,
    TooDeep,
    Variable,
    Word,
    cleaned,
    decode_escapes,
    plain,
    shield,
)


def only(text: str) -> object:
    [statement] = parse(text, Meter()).body.statements
    return statement


def command(text: str) -> Command:
    statement = only(text)
    if isinstance(statement, Block):  # what the parser had to recover
        [statement] = statement.statements
    assert isinstance(statement, Command), statement
    return statement


def literal(word: Word) -> str:
    return "".join(part.value for part in word.parts if isinstance(part, Text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rm -rf /", ["rm", "-rf", "/"]),
        (r"\r\m 'a b' c\ d", ["rm", "a b", "c d"]),
        ("r''m \"\" x", ["rm", "", "x"]),
        (r"$'r\155\x20\u00e9\n'", ["rm \u00e9\n"]),
        ('$"rm" a', ["rm", "a"]),
        (r'"a\$b\\c\d"', [r"a$b\c\d"]),
        ("r\\\nm x", ["rm", "x"]),
        ("{rm,-rf,/}", ["{rm,-rf,/}"]),
        ("{rm,-rf} /", ["{rm,-rf}", "/"]),
        ("a # b", ["a"]),
    ],
)
def test_quoting_is_resolved_by_the_parser(text: str, words: list[str]) -> None:
    assert [plain(literal(word)) for word in command(text).words] == words


def test_quoted_specials_are_told_from_active_ones() -> None:
    active, quoted, escaped = (literal(word) for word in command(r"* '*' \*").words)
    assert active == "*"
    assert quoted == escaped == shield("*") != "*"
    assert plain(quoted) == "*"


def test_expansions_keep_name_operator_and_quoting() -> None:
    bare, quoted, fallback = (word.parts[-1] for word in command('$a "$b" ${c:-d}').words)
    assert bare == Variable("a", quoted=False)
    assert quoted == Variable("b", quoted=True)
    assert isinstance(fallback, Variable)
    assert (fallback.name, fallback.operator) == ("c", ":-")
    assert fallback.fallback is not None
    assert literal(fallback.fallback) == "d"


def test_substitutions_hold_their_commands() -> None:
    for text in ("x $(y z)", "x `y z`", 'x "$(y z)"', "x <(y z)", "x $((1 + $(y z)))"):
        part = command(text).words[1].parts[-1]
        assert isinstance(part, Substitution), text
        assert "'z'" in repr(part.body), text


def test_compound_statements_have_their_own_kinds() -> None:
    assert isinstance(only("a | b |& c"), Pipeline)
    assert isinstance(only("a && b &"), Background)
    assert isinstance(only("{ a; } > f"), Redirected)
    assert isinstance(only("for x in 1 2; do a; done"), Loop)
    function = only("f() { a; }")
    assert isinstance(function, Function)
    assert function.name == "f"
    subshell = only("(a)")
    assert isinstance(subshell, Block)
    assert subshell.subshell


def test_redirects_and_heredoc_bodies_belong_to_their_command() -> None:
    statement = command("sh 2>&1 >> log <<EOF\nrm $x\nEOF\n")
    assert [redirect.operator for redirect in statement.redirects] == [">&", ">>", "<<"]
    assert statement.redirects[-1].target.parts[1:3] == (Text("rm "), Variable("x", quoted=True))
    piped = only("sh <<'E' | cat && ls\nrm $x\nE\n")
    assert isinstance(piped, Block | Pipeline)
    assert "rm $x" in repr(piped)
    assert command("exec 3<>/dev/sda").redirects[0].operator == "<>"


def test_a_long_list_is_flat() -> None:
    statement = only(" && ".join(["a"] * 5_000))
    assert isinstance(statement, Block)
    assert len(statement.statements) == 5_000


def test_nesting_ends_in_too_deep() -> None:
    script = parse("( " * 1_000 + "a" + " )" * 1_000, Meter())
    assert TooDeep.__name__ in repr(script.body)
    assert repr(script.body).count("subshell=True") <= MAX_NESTING + 1


def test_what_does_not_fit_is_kept_as_unread() -> None:
    script = parse("ls )", Meter())
    assert [unread.text for unread in script.unread] == [")"]
    assert isinstance(script.body.statements[0], Command)
    assert parse("ls", Meter()).unread == ()


def test_places_are_lines_and_characters() -> None:
    script = parse("a\n\u00e9\u6f22 b", Meter())
    assert script.place(0) == (1, 1)
    assert script.place(len("a\n\u00e9\u6f22 ".encode())) == (2, 4)
    assert Script(Block((), 0), b"").place(0) == (1, 1)


def test_cleaning_keeps_length_and_lets_no_private_character_in() -> None:
    text = "a\0\ud800\U000f1004b"
    assert cleaned(text) == "a\u200b\ufffd\ufffdb"
    assert cleaned("\u00e9\U0001f469") == "\u00e9\U0001f469"
    assert decode_escapes(r"\U000f1004") == "\ufffd"


@pytest.mark.parametrize("piece", ["|", "?|", "a=(", "<"])
def test_parsing_hostile_text_ends_by_the_meter(piece: str) -> None:
    meter = Meter(cpu_seconds=0.05)
    with pytest.raises(ParsingTooCostly):
        parse(piece * 50_000, meter)
    assert only("ls") == only("ls")  # the parser is usable afterwards


def test_a_spent_meter_parses_no_more_than_a_little() -> None:
    meter = Meter(cpu_seconds=0)
    with pytest.raises(ParsingTooCostly):
        parse("echo hello\n" * 1_000, meter)


def test_threads_parse_at_the_same_time() -> None:
    texts = [f"for x in {n}; do echo {n} | cat; done\n" * 200 for n in range(4)]
    results: dict[int, Script] = {}

    def work(n: int) -> None:
        results[n] = parse(texts[n], Meter(cpu_seconds=5))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {n: results[n] for n in range(4)} == {n: parse(texts[n], Meter(cpu_seconds=5)) for n in range(4)}
