"""Secrets are taken out however the text that they are in is cut, and nothing else is."""

import base64
import json
import pathlib
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from aeolus_sandbox.streaming import filters
from aeolus_sandbox.streaming.filters import CleanControls, Redact, redaction
from aeolus_sandbox.streaming.filters.base import filtered
from tests.unit.text_pieces import cuts, passed, split

HIDDEN = "[redacted]"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ" * 3
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{LETTERS[:64]}\n{LETTERS[:40]}==\n-----END RSA PRIVATE KEY-----"


def secret(value: str) -> Redact:
    return Redact(values=(SecretStr(value),), patterns=())


def hides(pattern: str, text: str) -> str:
    return filtered(text, [Redact(patterns=(pattern,), replacement="*")])


# However it is cut.

VALUES = Redact(values=tuple(map(SecretStr, ("swordfish", "sword/fish&chips", "fishing\nboat", "abcabcabd"))))
value_parts = st.sampled_from(
    ["swordfish", "sword", "fish", "/fish&chips", "%2Ffish%26chips", "\\/fish", "ing\nboat", "ing\r\nboat",
     "abc", "abd", "abcabcabd", base64.b64encode(b"xx swordfish").decode(), "c3dvcmRma", "XNo", "\n", " "]
)  # fmt: skip
pattern_parts = st.sampled_from(
    ["AKIA", "IOSFODNN7EXAMPLE", "ghp_", LETTERS[:40], "password", "=", ": ", '"', "'", "\\", "api_key", "hunter2",
     "://", "user", ":", "@", "eyJ", JWT, ".", "-----BEGIN PRIVATE KEY-----", "\n", LETTERS[:20], "=>", "sk-",
     "Authorization: Bearer ", "glpat-", "xoxb-", "x1", " ", "(", ")", ";"]
)  # fmt: skip
NASTY = (
    r"\bab\b", r"a(?!b)", r"(?<!b)ab*", r"abab|ba|ab", r"ab|abab", r"a.*b", r"(?m)^ab$", r"b\B", r"a(?!\Z)",
    r"b\Ka+", r"ab\Z", r"(?<=ab{0,3})-+", r"(?s)a.*", r"a+?b", r"(a|b)\1", r"-\b", r"(?>ab|a)b?-", r"a(?=b*-)",
    r"(?i)AB\K-+\b", r"a(?!b*$)", r"[ab]{3,5}(?![ab])", r"(?:\bab|-)a{0,2}\Kb", r"[\]b]$", r"a{20,}",
)  # fmt: skip


@settings(deadline=None)
@given(st.lists(value_parts, max_size=12).map("".join), cuts)
def test_cutting_a_text_with_values_anywhere_gives_the_same(text: str, places: list[int]) -> None:
    assert passed(VALUES, split(text, places)) == passed(VALUES, [text])
    assert not any(value.get_secret_value() in passed(VALUES, split(text, places)) for value in VALUES.values)


@settings(deadline=None)
@given(st.lists(pattern_parts, max_size=12).map("".join), cuts)
def test_cutting_a_text_with_tokens_anywhere_gives_the_same(text: str, places: list[int]) -> None:
    assert passed(Redact(), split(text, places)) == passed(Redact(), [text])


@given(
    st.text("ab- \n", max_size=60),
    cuts,
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=3, unique=True),
    st.sampled_from([8, 24, 1000]),
)
@settings(max_examples=400, deadline=None)
def test_cutting_gives_the_same_for_any_pattern_and_beyond_the_longest_secret(
    text: str, places: list[int], patterns: list[str], longest: int
) -> None:
    config = Redact(patterns=tuple(patterns), replacement="*")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redaction, "_LONGEST", longest)
        patch.setattr(redaction, "_CONTEXT", 12)
        whole = passed(config, [text])
        assert passed(config, split(text, places)) == whole
        assert passed(config, list(text)) == whole


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["sword", "\x1b[1m", "fish", "\x1b", "[", "m", " "]), max_size=12).map("".join),
    cuts,
)
def test_cutting_gives_the_same_for_a_chain(text: str, places: list[int]) -> None:
    chain = [CleanControls(), VALUES]
    assert passed(chain, split(text, places)) == passed(chain, [text])
    assert "swordfish" not in passed(chain, split(text, places))


# What is taken out.


@pytest.mark.parametrize(
    "spelled",
    [
        str,
        lambda value: json.dumps(value)[1:-1],
        lambda value: json.dumps(value, ensure_ascii=False)[1:-1],
        lambda value: json.dumps(value)[1:-1].replace("/", "\\/").replace("<", "\\u003C"),
        quote,
        quote_plus,
        lambda value: quote(value, safe=""),
        lambda value: quote(value, safe="").replace("%2F", "%2f"),
        lambda value: quote(value, safe="!'()*~;:@&=+$,/?#"),
        lambda value: value.replace("\n", "\r\n"),
    ],
)
def test_value_is_taken_out_in_every_usual_spelling(spelled: object) -> None:
    value = 'pa"ss\\w/o<r>d+ 100%é𝄞\n2'
    assert callable(spelled)
    assert filtered(f"a {spelled(value)} b", [secret(value)]) == f"a {HIDDEN} b"


@pytest.mark.parametrize("before", ["", "x", "xy", "xyz", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode, base64.encodebytes])
def test_value_is_taken_out_inside_base64_at_every_alignment(before: str, encode: object) -> None:
    value = "correct?horse>battery~staple" * 4
    assert callable(encode)
    left = filtered(encode(f"{before}{value}:after".encode()).decode(), [secret(value)])
    assert HIDDEN in left
    assert len(left.replace(HIDDEN, "").strip()) <= 20


def test_line_ends_around_a_value_do_not_count() -> None:
    assert filtered("a hunter2 b", [secret("hunter2\n")]) == f"a {HIDDEN} b"


def test_values_that_overlap_or_hold_each_other_are_taken_out_whole() -> None:
    config = Redact(values=tuple(map(SecretStr, ("abcd", "abcdefgh", "ghij", "cdef"))), patterns=())
    assert (
        filtered("-abcdefghij-abcd-abcdef-abcdabcd-", [config])
        == f"-{HIDDEN}-{HIDDEN}-{HIDDEN}-{HIDDEN}{HIDDEN}-"
    )


def test_beginning_of_a_value_at_the_end_is_taken_out_once_it_says_too_much() -> None:
    config = secret("swordfishes")
    assert filtered("a swordfi", [config]) == "a swordfi"
    assert filtered("a swordfis", [config]) == f"a {HIDDEN}"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("id AKIAIOSFODNN7EXAMPLE.", f"id AKIA{HIDDEN}."),
        (f"ghp_{LETTERS[:36]} gho_{LETTERS[:40]}", f"ghp_{HIDDEN} gho_{HIDDEN}"),
        (f"github_pat_{LETTERS[:22]}_{LETTERS[:59]}", f"github_pat_{HIDDEN}"),
        (f"glpat-{LETTERS[:20]}", f"glpat-{HIDDEN}"),
        (f"xoxb-123456789012-{LETTERS[:24]}", f"xoxb-{HIDDEN}"),
        (f"?key=AIza{LETTERS[:35]}&x", f"?key=AIza{HIDDEN}&x"),
        (f"sk-{LETTERS[:48]} sk-ant-api03-{LETTERS[:90]}AA", f"sk-{HIDDEN} sk-{HIDDEN}"),
        (f"sk_live_{LETTERS[:24]} rk_live_{LETTERS[:24]}", f"sk_live_{HIDDEN} rk_live_{HIDDEN}"),
        (f"npm_{LETTERS[:36]}", f"npm_{HIDDEN}"),
        (f"pypi-{LETTERS[:100]}", f"pypi-{HIDDEN}"),
        (f"jwt {JWT}, ok", f"jwt eyJ{HIDDEN}, ok"),
        (PEM, f"-----BEGIN RSA PRIVATE KEY-----{HIDDEN}-----END RSA PRIVATE KEY-----"),
        (PEM[:100], f"-----BEGIN RSA PRIVATE KEY-----{HIDDEN}"),
        (json.dumps(PEM), f'"-----BEGIN RSA PRIVATE KEY-----{HIDDEN}-----END RSA PRIVATE KEY-----"'),
        (PEM.replace("\n", "\r\n") + "\r\nok", f"-----BEGIN RSA PRIVATE KEY-----{HIDDEN}-----END RSA PRIVATE KEY-----\r\nok"),
        (
            f"-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{LETTERS[:64]}\n=abcd\n-----END",
            f"-----BEGIN PGP PRIVATE KEY BLOCK-----{HIDDEN}-----END",
        ),
        ("Authorization: Bearer abcd.efgh-1234", f"Authorization: Bearer {HIDDEN}"),
        ("authorization: basic dXNlcjpwYXNz\r\nHost: x", f"authorization: basic {HIDDEN}\r\nHost: x"),
        ('{"Authorization": "Bearer abcdefgh1234"}', f'{{"Authorization": "Bearer {HIDDEN}"}}'),
        ("postgres://admin:s3cr3t@db:5432/x", f"postgres://admin:{HIDDEN}@db:5432/x"),
        ("redis://:letmein@cache", f"redis://:{HIDDEN}@cache"),
        ("DB_PASSWORD=letmein\nX=1", f"DB_PASSWORD={HIDDEN}\nX=1"),
        ("aws_secret_access_key = abc/DEF+123", f"aws_secret_access_key = {HIDDEN}"),
        ("GITHUB_TOKEN=abcd efgh", f"GITHUB_TOKEN={HIDDEN} efgh"),
        ('{"password": "correct horse", "a": 1}', f'{{"password": "{HIDDEN}", "a": 1}}'),
        ("api_key: 'abcd'", f"api_key: '{HIDDEN}'"),
        ('secret = "a\\"bcd" + x', f'secret = "{HIDDEN}" + x'),
        ("secret: hunter22\n", f"secret: {HIDDEN}\n"),
        ("'client_secret' => 'hunter'", f"'client_secret' => '{HIDDEN}'"),
        ("?access_token=abcdef&x=1", f"?access_token={HIDDEN}&x=1"),
        ('passphrase := "open sesame"', f'passphrase := "{HIDDEN}"'),
    ],
)  # fmt: skip
def test_well_known_secrets_are_taken_out_and_their_names_stay(text: str, rest: str) -> None:
    assert filtered(text, [Redact()]) == rest
    assert passed(Redact(), list(text)) == rest


@pytest.mark.parametrize(
    "text",
    [
        "commit 41cade40ebf2780c9f3b2f2a7d5e5b1c0d9e8f7a\nAuthor: A <a@example.org>",
        "id 123e4567-e89b-12d3-a456-426614174000, sha256:" + "0123456789abcdef" * 4,
        "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 20).decode(),
        "The password: please enter it. It is a secret, a token of trust: keep it.",
        'password = getpass("Password: ")\ntoken = request.headers["x"]\nif password == "abcd": pass',
        "def f(password: str, api_key: SecretStr | None = None) -> Token:\n    connect(password=password)",
        "max_tokens=4096, next_token: 17, pad_token='<pad>', monkey=banana, PWD=/home/user",
        "https://example.com:8080/path?q=a@b http://[::1]:8080/ git@github.com:a/b.git",
        "#sk-container-id-1 div.sk-toggleable__content--label risk-based-assessment-of-1-Task",
        "-----BEGIN PUBLIC KEY-----\n" + LETTERS[:64] + "\n-----END PUBLIC KEY-----",
        'grep -- "-----BEGIN PRIVATE KEY-----" * | head',
        "password: ****  password=$PASSWORD secret: <hidden> token=${TOKEN}",
        "eyJ is how JSON begins in base64; ghp_ begins a token",
        "Authorization: required, Basic and Bearer are known",
        *(path.read_text() for path in sorted(pathlib.Path(filters.__file__).parents[1].glob("*.py"))),
    ],
)
def test_what_is_no_secret_passes_untouched(text: str) -> None:
    assert filtered(text, [Redact()]) == text


# What is held back, and for how long.


@pytest.mark.parametrize(
    "prompt", ["Password: ", "Enter passphrase for key '/root/.ssh/id': ", ">>> ", "$ ", "token="]
)
def test_prompt_is_not_delayed(prompt: str) -> None:
    assert Redact(values=(SecretStr("hunter2"),)).start().feed(prompt) == prompt


def test_only_what_may_be_a_secret_is_held_back() -> None:
    redactor = secret("swordfish").start()
    assert [redactor.feed(each) for each in ("a swo", "rd", "fight ", "sword", "fish", " b")] == [
        "a ", "", "swordfight ", "", HIDDEN, " b",
    ]  # fmt: skip


def test_secret_that_never_ends_is_taken_out_as_it_stands_and_memory_stays_bounded() -> None:
    config = Redact(patterns=(r"<<[^>]*>>",), replacement="*")
    redactor = config.start()
    assert isinstance(redactor, redaction._Redactor)
    out = ""
    for _ in range(100):
        out += redactor.feed("<<" + "x" * 1000)
        assert len(redactor._text) < 20_000
    assert "x" * 20_000 not in out
    assert out.startswith("*")


@pytest.mark.parametrize("pieces", [["a" * 40 + "!", " more", " and more"], ["a" * 40 + "! more and more"]])
def test_pattern_that_takes_too_long_hides_all_that_follows(pieces: list[str]) -> None:
    config = Redact(patterns=(r"(a|aa|a{3})+$",), replacement="*")
    assert passed(config, ["before ", *pieces]) == "before *"


@pytest.mark.parametrize(
    "part",
    ["password=", "password: x", 'secret="', "secret='\\", "://", "://a:", "eyJ", "eyJabcdefghijk.", "sk-", "sk-a", "xoxb-",
     "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nA: b\n", "authorization: bearer ", "-", "=", " ", "\\n", "a:",
     "A_TOKEN: "],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_hostile_text_takes_time_in_proportion(part: str) -> None:
    filtered(part * (100_000 // len(part)), [Redact()])


# The configuration.


@pytest.mark.parametrize("value", ["", "abc", "abc\n", "**********", "x" * 20_000])
def test_value_that_cannot_be_told_from_text_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="a secret"):
        secret(value)


@pytest.mark.parametrize("pattern", ["(", "", "a*", "x|", r"(?r)abcd", r"a\K(", r"ab(?=c)\Kd"])
def test_pattern_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="the pattern"):
        Redact(patterns=(pattern,))


def test_no_value_shows_in_the_configuration_or_its_errors() -> None:
    config = Redact(values=(SecretStr("hunter2"),))
    shown = [repr(config), str(config), config.model_dump_json(), repr(config.model_dump())]
    for wrong in ({"values": ("hunter2", "q7")}, {"values": "hunter2"}, {"values": ["hunter2", 1]}):
        with pytest.raises(ValueError, match="values") as caught:
            Redact.model_validate(wrong)
        shown += [str(caught.value), repr(caught.value), repr(getattr(caught.value, "errors")())]  # noqa: B009
    assert "hunter2" not in "".join(shown)
    assert "q7" not in "".join(shown)


def test_secret_after_backslash_k_is_all_that_goes() -> None:
    assert hides(r"pin \K\d{4}", "pin 1234 1234") == "pin * 1234"
    assert hides(r"[\\]K\d", "\\K1") == "*"


def test_copy_with_other_values_takes_those_out() -> None:
    copy = secret("hunter2").model_copy(update={"values": (SecretStr("swordfish"),)})
    assert filtered("hunter2 swordfish", [copy]) == f"hunter2 {HIDDEN}"
