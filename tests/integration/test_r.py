"""R in the code interpreter: plots, values, messages and errors as R shows them, and an end of every cell."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aeolus_sandbox import LimitName, Limits, SessionManager
from aeolus_sandbox.limits import MIB
from tests.integration.code_runs import Ran, finish, open_code, read_until, run_code, shared_manager

pytestmark = [pytest.mark.docker, pytest.mark.xdist_group("r")]

PNG = b"\x89PNG\r\n\x1a\n"
PROMPT_S = 5.0
"""How soon what must not hang has to end, on however busy a machine; on a quiet one it takes some 20 ms."""


@pytest.fixture(scope="module")
async def shared() -> AsyncIterator[SessionManager]:
    async with shared_manager() as manager:
        yield manager


async def cell(shared: SessionManager, code: str, **settings: Any) -> Ran:
    """Run a cell in the kernel that this module's tests share."""
    return await run_code(shared, code, language="r", session_id="r", **settings)


async def assert_kept(shared: SessionManager) -> None:
    """Assert that the kernel and its variables are still there."""
    ran = await cell(shared, "a")
    assert (ran.result.result, ran.result.environment_recreated) == ("[1] 1", False)


async def assert_lost(shared: SessionManager) -> None:
    """Assert that the next cell runs in a new kernel, and says so."""
    ran = await cell(shared, 'exists("a")')
    assert (ran.result.result, ran.result.environment_recreated) == ("[1] FALSE", True)


@pytest.mark.parametrize(
    ("code", "images"),
    [
        ("plot(1:3)", 1),
        ("plot(1:3); lines(1:3); abline(h=2)", 1),
        ("plot(1:3)\nlines(1:3)", 1),
        ("plot(1:3); plot(3:1)", 2),
        ("for(i in 1:3) plot(i)", 3),
        ("par(mfrow = c(1, 2)); plot(1); plot(2)", 1),
        ("plot(1:3); invisible(dev.off())", 1),
        ("png('mine.png'); plot(1); invisible(dev.off())", 0),
        ("library(ggplot2); ggplot(mtcars, aes(mpg, wt)) + geom_point()", 1),
        ("p <- ggplot2::qplot(1:3, 1:3); print(p); invisible(p)", 1),
        ("plot(1:3); stop('after')", 1),
    ],
)
async def test_each_page_that_was_drawn_is_one_image(shared: SessionManager, code: str, images: int) -> None:
    ran = await cell(shared, f"suppressWarnings({{\n{code}\n}})" if "qplot" in code else code)
    assert len(ran.of("image")) == ran.result.images == images
    assert all(image.data.startswith(PNG) for image in ran.of("image"))
    assert ran.of("result") == []
    assert ran.result.success or "stop" in code


async def test_plots_leave_no_file_behind(shared: SessionManager) -> None:
    await cell(shared, "plot(1); lines(1:2)")
    ran = await cell(
        shared,
        "c(list.files('.', 'pdf$|cache', all.files = TRUE), list.files(tempdir(), 'png', recursive = TRUE))",
    )
    assert ran.result.result == "character(0)"


async def test_adding_to_a_plot_that_is_not_there_is_an_error(shared: SessionManager) -> None:
    ran = await cell(shared, "lines(1:2)")
    assert "plot.new has not been called yet" in ran.text("error")
    assert (ran.of("image"), ran.result.success) == ([], False)


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("1+1", "[1] 2"),
        ("(x <- 5)", "[1] 5"),
        ("c(a = 1, b = 2)", "a b \n1 2 "),
        ("'héllo 日本 👩'", '[1] "héllo 日本 👩"'),
        ("NULL", "NULL"),
        ("x <- 5", None),
        ("invisible(5)", None),
        ("", None),
        ("# only a comment", None),
    ],
)
async def test_visible_values_are_results_as_r_prints_them(
    shared: SessionManager, code: str, result: str | None
) -> None:
    ran = await cell(shared, code)
    assert ran.result.success
    assert ran.result.result == result
    assert [chunk.content for chunk in ran.of("result")] == ([] if result is None else [result])


async def test_data_frame_is_html_text_and_data(shared: SessionManager) -> None:
    ran = await cell(shared, "data.frame(a = c(1.123456789, Inf), b = c('x', NA), row.names = c('r', 's'))")
    [chunk] = ran.of("result")
    assert chunk.mime_type == "text/html"
    assert "<table" in chunk.content
    assert ran.result.result == "         a    b\nr 1.123457    x\ns      Inf <NA>"
    table = json.loads(chunk.alternatives["application/vnd.dataresource+json"])
    assert table["data"] == [{"row": "r", "a": 1.123456789, "b": "x"}, {"row": "s", "a": "INF", "b": None}]
    assert [field["type"] for field in table["schema"]["fields"]] == ["string", "number", "string"]
    assert (table["schema"]["primaryKey"], table["shape"], table["truncated"]) == (["row"], [2, 2], False)


async def test_long_data_frame_says_that_it_is_truncated(shared: SessionManager) -> None:
    ran = await cell(shared, "data.frame(a = 1:100000, b = 'x')")
    [chunk] = ran.of("result")
    table = json.loads(chunk.alternatives["application/vnd.dataresource+json"])
    assert (len(table["data"]), table["shape"], table["truncated"]) == (1000, [100_000, 2], True)
    assert "omitted" in chunk.alternatives["text/plain"]


@pytest.mark.parametrize(
    ("code", "mime", "content"),
    [
        ("IRdisplay::display_html('<b>bold</b>')", "text/html", "<b>bold</b>"),
        ("IRdisplay::display_markdown('# head')", "text/markdown", "# head"),
        ("IRdisplay::display_json('{\"a\":1}')", "application/json", '{"a":1}'),
    ],
)
async def test_rich_displays(shared: SessionManager, code: str, mime: str, content: str) -> None:
    ran = await cell(shared, code)
    assert [(c.stream, c.mime_type, c.content) for c in ran.chunks] == [("display", mime, content)]


async def test_streams_are_apart_and_in_order(shared: SessionManager) -> None:
    code = 'cat("a\\n"); message("m1"); cat("b\\n"); warning("w1"); 1 + 1; cat("out\\n")\n"last"'
    ran = await cell(shared, code)
    assert [(c.stream, c.content) for c in ran.chunks] == [
        ("stdout", "a\n"),
        ("stderr", "m1\n"),
        ("stdout", "b\n"),
        ("stderr", "Warning: w1\n"),
        ("result", "[1] 2"),
        ("stdout", "out\n"),
        ("result", '[1] "last"'),
    ]


async def test_order_holds_when_there_is_much(shared: SessionManager) -> None:
    ran = await cell(shared, "for (i in 1:500) { cat('o', i, '\\n', sep = ''); message('e', i) }")
    assert "".join(chunk.content for chunk in ran.chunks) == "".join(f"o{i}\ne{i}\n" for i in range(1, 501))


async def test_output_of_programs_is_shown(shared: SessionManager) -> None:
    ran = await cell(shared, 'cat("1\\n"); system("echo from-sys; echo from-err >&2"); cat("2\\n")')
    assert ran.text() == "1\nfrom-sys\n2\n"
    assert ran.text("stderr") == "from-err\n"


async def test_messages_of_packages_are_plain_lines(shared: SessionManager) -> None:
    ran = await cell(
        shared, 'rlang::inform(c("one", i = "two")); cat(cli::col_red("red"), "\\n"); dplyr::tibble(a = 1)'
    )
    assert ran.text("stderr") == "one\n\u2139 two\n"
    assert ran.text() == "red \n"
    assert ran.result.result is not None
    assert ran.result.result.startswith("# A tibble: 1")


async def test_messages_can_be_caught_and_turned_off(shared: SessionManager) -> None:
    code = (
        'suppressMessages(message("no")); suppressWarnings(warning("no"))\n'
        'tryCatch(warning("caught"), warning = function(w) cat(conditionMessage(w)))\n'
        'capture.output(message("captured"), type = "message")'
    )
    ran = await cell(shared, code)
    assert (ran.text(), ran.text("stderr"), ran.result.result) == ("caught", "", '[1] "captured"')


@pytest.mark.parametrize(
    ("code", "name", "value"),
    [
        ("x <- (1 +", "ParseError", "unexpected end of input"),
        ('cat("ran"); )', "ParseError", "unexpected ')'"),
        ('stop("x"); cat("after")', "simpleError", "x"),
        ("nothing_of_this_name", "simpleError", "not found"),
        ("f <- function() f(); f()", "CStackOverflowError", "C stack"),
        ('invokeRestart("abort"); cat("after")', "abort", "aborted"),
    ],
)
async def test_error_is_data_and_nothing_after_it_runs(
    shared: SessionManager, code: str, name: str, value: str
) -> None:
    ran = await cell(shared, code)
    assert (ran.result.success, ran.error_name) == (False, name)
    assert value in ran.error_value
    assert (len(ran.of("error")), ran.text()) == (1, "")


async def test_traceback_holds_the_calls_of_the_code_alone(shared: SessionManager) -> None:
    ran = await cell(shared, 'f <- function(x) g(x)\ng <- function(x) stop("deep")\nf(1)')
    assert ran.result.error is not None
    assert list(ran.result.error.traceback) == ["1. f(1)", "2. g(x)", '3. stop("deep")', "simpleError: deep"]


async def test_output_arrives_while_the_code_runs(shared: SessionManager) -> None:
    code = 'cat("tick"); while (!file.exists("go")) Sys.sleep(0.02); cat("tock")'
    async with await open_code(shared, code, language="r", session_id="r") as session:
        assert await read_until(session, "tick") == "tick"
        assert session.status is None


@pytest.mark.parametrize(
    ("code", "error", "result"),
    [
        ('readline("n? ")', "NoInputError", None),
        ('menu(c("a", "b"))', "simpleError", None),
        ("readLines(stdin())", None, "character(0)"),
        ('readLines(file("stdin"))', None, "character(0)"),
        ('system("cat; read x; echo rc $?", intern = TRUE)', None, '[1] "rc 1"'),
    ],
)
async def test_asking_for_input_ends_at_once(
    shared: SessionManager, code: str, error: str | None, result: str | None
) -> None:
    ran = await cell(shared, code)
    assert (ran.error_name, ran.result.result) == (error, result)
    assert ran.seconds < PROMPT_S


@pytest.mark.parametrize("code", ["Sys.sleep(30)", "while (TRUE) {}", "repeat Sys.sleep(0.01)"])
async def test_interrupt_keeps_the_variables(shared: SessionManager, code: str) -> None:
    await cell(shared, "a <- 1")
    async with await open_code(
        shared, f'cat("on\\n"); {code}; cat("after")', language="r", session_id="r"
    ) as session:
        await read_until(session, "on")
        began = time.monotonic()
        await session.cancel()
        result = await finish(session)
        assert time.monotonic() - began < PROMPT_S
    assert (result.status.reason, result.output, result.success) == ("cancelled", "on\n", False)
    await assert_kept(shared)


async def test_quit_ends_the_kernel_and_the_next_cell_says_so(shared: SessionManager) -> None:
    ran = await cell(shared, 'a <- 1; cat("bye\\n"); q(); cat("after")')
    assert (ran.text(), ran.result.success) == ("bye\n", True)
    await assert_lost(shared)


async def test_quit_with_a_status_tells_the_status(shared: SessionManager) -> None:
    ran = await cell(shared, 'a <- 1; cat("bye\\n"); quit(status = 3)')
    assert ran.text() == "bye\n"
    assert (ran.result.status.reason, ran.result.status.code) == ("exited", 3)
    assert "exited with code 3" in ran.error_value
    assert ran.seconds < PROMPT_S
    await assert_lost(shared)


async def test_killed_kernel_is_told_with_what_it_had_printed(shared: SessionManager) -> None:
    ran = await cell(shared, 'a <- 1; cat("before\\n"); tools::pskill(Sys.getpid(), 9); Sys.sleep(60)')
    assert ran.text() == "before\n"
    assert (ran.result.status.reason, ran.result.status.code) == ("killed", 137)
    assert ran.seconds < PROMPT_S
    await assert_lost(shared)


async def test_kernel_out_of_memory_says_so(shared: SessionManager) -> None:
    code = "x <- list(); while (TRUE) x[[length(x) + 1]] <- rep(1.5, 2.5e6)"
    ran = await run_code(
        shared, code, language="r", session_id="small", limits=Limits(memory_bytes=256 * MIB)
    )
    assert "out of memory, limit 256 MiB" in ran.text("error")
    assert (ran.result.status.reason, ran.result.status.limit_hit) == ("out_of_memory", LimitName.MEMORY)
    after = await run_code(shared, "1+1", language="r", session_id="small")
    assert (after.result.result, after.result.environment_recreated) == ("[1] 2", True)


async def test_text_that_is_no_text_loses_nothing(shared: SessionManager) -> None:
    ran = await cell(shared, 'cat("caf\\xe9\\n"); message("caf\\xe9"); list("caf\\xe9")')
    assert (ran.text(), ran.text("stderr")) == ("caf\ufffd\n", "caf\ufffd\n")
    assert ran.result.success
    assert (await cell(shared, 'cat("tail\\xe9")')).text() == "tail\ufffd"
    assert (await cell(shared, 'cat("still here")')).text() == "still here"


async def test_one_long_line_arrives_whole(shared: SessionManager) -> None:
    assert (await cell(shared, 'cat(strrep("x", 5e6))')).text() == "x" * 5_000_000


async def test_code_that_meddles_with_connections_loses_no_output(shared: SessionManager) -> None:
    code = 'closeAllConnections(); message("m"); 1 + 1; cat("o")'
    ran = await cell(shared, code)
    assert [(c.stream, c.content) for c in ran.chunks] == [
        ("stderr", "m\n"),
        ("result", "[1] 2"),
        ("stdout", "o"),
    ]


async def test_packages_of_the_image_work(shared: SessionManager) -> None:
    code = (
        "suppressPackageStartupMessages({library(dplyr); library(data.table)})\n"
        "mtcars |> filter(cyl == 4) |> summarise(n = n()) |> pull(n)\n"
        "data.table(a = 1:2)[, sum(a)]\njsonlite::toJSON(1:2)"
    )
    ran = await cell(shared, code)
    assert [chunk.content for chunk in ran.of("result")] == ["[1] 11", "[1] 3", "[1,2] "]
