"""What R code is warned about, and what it is not."""

import pytest

from aeolus_sandbox.tools.code_interpreter.analysis import analyse
from aeolus_sandbox.tools.code_interpreter.analysis.r_rules import RULES

BREAKS = {
    "process_start": ["system2('ls')", "processx::run('ls')", "base::system2('ls', c('-l'))"],
    "shell_command": [
        "system('ls')",
        "base::system('ls')",
        "s <- system; s('ls')",
        "s = system\ns('ls')",
        "system -> s\ns('ls')",
        "get('system')('ls')",
        "do.call('system', list('ls'))",
        "match.fun(paste0('sys', 'tem'))('ls')",
        "'system'('ls')",
        "`system`('ls')",
        "'ls' |> system()",
        "f <- function(x) {\n  if (x) system('ls') else 2\n}",
        "lapply(x, \\(y) system('ls'))",
        "r\"(a)\"; system('ls')",
        "x <- 3 %in% system('ls')",
    ],
    "fork": ["parallel:::mcfork()", "parallel::mcparallel(f())"],
    "fork_bomb": ["repeat parallel:::mcfork()", "for (i in 1:9) { parallel:::mcfork() }"],
    "endless_process_loop": ["repeat { system2('x', wait = FALSE) }", "while (TRUE) system('x &')"],
    "computed_code": ["eval(parse(text = '1 + 1'))", "e <- parse(text = x)\neval(e)", "eval(str2lang(x))"],
    "decoded_code": ["eval(parse(text = rawToChar(x)))", "parse(text = base64enc::base64decode(x))"],
    "unsafe_unpickling": ["unserialize(x)"],
    "foreign_function": ["dyn.load('a.so')", ".Call('f')", "Rcpp::cppFunction(x)"],
    "network": [
        "download.file('http://example.com', 'a')",
        "install.packages('x')",
        "readLines('https://example.com')",
    ],
    "metadata_address": ["x <- 'http://169.254.169.254/'"],
    "delete_outside_workspace": [
        "unlink('/', recursive = TRUE)",
        "file.remove(c('a', '/etc/hosts'))",
        "unlink(file.path('/etc', 'hosts'))",
        "unlink(x = '../a')",
    ],
    "write_outside_workspace": [
        "writeLines('a', '/etc/x')",
        "cat('a', file = '/etc/x')",
        "write.csv(d, file = '/opt/x')",
        "file('/opt/x', 'w')",
        "dir.create('/opt/x')",
        "file.copy('a', '/opt/a')",
    ],
    "system_secret": [
        "readLines('/etc/shadow')",
        "file('/proc/self/environ')",
        "readLines(con = f, '/etc/shadow')",
    ],
    "ends_kernel": ["quit()", "q('no')", "quit(status = 3)", "tools::pskill(Sys.getpid())"],
    "kills_sandbox": ["tools::pskill(1)", "tools::pskill(-1L)"],
    "huge_allocation": ["numeric(1e10)", "rep(0, 1e10)", "matrix(0, 10^10)", "strrep('a', 2^33)"],
    "changes_builtins": ["assignInNamespace('f', g, 'base')", "unlockBinding('f', baseenv())"],
    "import_hook": ["setHook('x', f)", ".libPaths('a')"],
    "environment_dump": ["Sys.getenv()", "print(Sys.getenv())"],
}
KEEPS = {
    "process_start": ["system2 <- f\nsystem2('ls')", "x$system2('ls')"],
    "shell_command": [
        "# system('ls')",
        "'system'",
        "system.time(f())",
        "system.file('a')",
        "x$system('ls')",
        "f <- function(system) system('ls')",
    ],
    "fork": ["fork <- 1"],
    "fork_bomb": ["parallel::mcparallel(f())"],
    "endless_process_loop": ["repeat { system2('x'); if (y) break }", "for (i in 1:3) system2('x')"],
    "computed_code": ["eval(quote(x))", "parse(text = '1 + 1')", "parse('file.R')"],
    "decoded_code": ["rawToChar(x)", "parse(text = x)"],
    "unsafe_unpickling": ["unserialize(serialize(x, NULL))", "readRDS('a.rds')"],
    "foreign_function": ["x$.Call", "Call('f')"],
    "network": ["readLines('a.txt')", "read.csv('data.csv')"],
    "metadata_address": ["x <- '169.254.169.2541'"],
    "delete_outside_workspace": ["unlink('a', recursive = TRUE)", "unlink('/tmp/a')", "unlink(x)"],
    "write_outside_workspace": [
        "writeLines('/etc/x', 'a')",
        "cat('/etc/x')",
        "file('/etc/hosts', 'r')",
        "write.csv(d, 'a.csv')",
    ],
    "system_secret": ["readLines('/proc/meminfo')", "print('/etc/shadow')"],
    "ends_kernel": ["q <- 3\nq", "tools::pskill(child)", "stop('quit')"],
    "kills_sandbox": ["tools::pskill(1234)"],
    "huge_allocation": ["numeric(10)", "rep(0, n)", "1e10"],
    "changes_builtins": ["assign('x', 1)", "trace"],
    "import_hook": [".libPaths()"],
    "environment_dump": ["Sys.getenv('HOME')", "Sys.getenv(x = 'HOME')", "Sys.setenv(A = '1')"],
}


def rules_of(code: str) -> list[str]:
    return [found.rule for found in analyse(code, "r")]


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in BREAKS.items() for code in codes])
def test_what_breaks_a_rule_is_found(rule: str, code: str) -> None:
    assert rule in rules_of(code)


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in KEEPS.items() for code in codes])
def test_what_only_looks_like_it_is_not_found(rule: str, code: str) -> None:
    assert rule not in rules_of(code)


def test_every_rule_has_examples_of_both_kinds() -> None:
    assert RULES.rules() == set(BREAKS) == set(KEEPS)


HONEST = r"""
library(ggplot2)
df <- data.frame(x = c(1, 2, NA), y = c("a", 'b', "it's"), stringsAsFactors = FALSE)
df$z <- df[["x"]] * 2 ^ 3; df[df$x > 1 & !is.na(df$x), "y"] -> picked
model <- lm(y ~ x + I(x^2), data = df)
f <- function(a, b = 2, ...) {
  if (a > b) {
    return(a)
  } else if (a == b) b else {
    -a
  }
}
g <- \(x) x |> sqrt() |> round(digits = 2L)
for (i in seq_len(3)) { next }
while (i < 10) i <- i + 1
repeat { i <- i - 1; if (i < 0) break }
s <- switch(picked[1], a = 1, b = , c = 2)
print(sprintf("%d of %s # no comment", 3L, r"---(raw ")" text)---"))
x %>% head(5) %in% 1:3
`my var` <- 0x1F + 1e-3 + .5
ggplot(df, aes(x, y)) +
  geom_point() +
  labs(title = "A")
dir.create("out"); write.csv(df, file.path("out", "a.csv"))
x@slot; pkg::data; -x:3; !TRUE || FALSE
"""


def test_honest_code_has_no_findings() -> None:
    assert analyse(HONEST, "r") == []


def test_code_after_every_construct_is_read() -> None:
    lines = HONEST.rstrip().count("\n") + 2
    assert [(found.rule, found.line) for found in analyse(HONEST + "quit()", "r")] == [("ends_kernel", lines)]


@pytest.mark.parametrize(
    "code",
    [
        "system('rm -rf /')",
        "'rm -rf /' |> system()",
        "system2('rm', c('-rf', '/'))",
        "pipe('rm -rf /')",
        "processx::run('rm', c('-rf', '/'))",
    ],
)
def test_commands_go_to_the_command_check(code: str) -> None:
    assert "recursive_delete_of_root" in rules_of(code)


def test_places_are_in_characters() -> None:
    [found] = analyse("x <- '\u00e9\u6f22\n\u00e9'; quit()", "r")
    assert (found.line, found.column) == (2, 5)


def test_code_beside_a_mistake_is_read() -> None:
    assert rules_of("x <- ) 3 }\nquit()") == ["ends_kernel"]
