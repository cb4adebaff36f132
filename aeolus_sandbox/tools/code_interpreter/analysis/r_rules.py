"""What R code is warned about."""

from typing import Final

from aeolus_sandbox.tools.code_interpreter.analysis import catalogue as rule
from aeolus_sandbox.tools.code_interpreter.analysis.conditions import (
    comes_from,
    has,
    huge,
    in_endless_loop,
    in_loop,
    is_metadata,
    no,
    number,
    outside,
    path,
    secret,
    text_at,
    words_of,
)
from aeolus_sandbox.tools.code_interpreter.analysis.facts import Fact, Value
from aeolus_sandbox.tools.code_interpreter.analysis.rules import Command, RuleBook, ShellText, Sign

_SHELLS: Final = ("system", "shell", "pipe")
_STARTERS: Final = (
    "system2",
    "processx.run",
    "processx.process.new",
    "callr.r",
    "sys.run",
    "parallel.makeCluster",
)
_FORKS: Final = ("parallel.mcparallel", "parallel:::mcfork", "parallel.mcfork", "mcparallel", "mcfork")
_READERS: Final = (
    *("readLines", "readRDS", "readChar", "readBin", "file", "scan", "read.csv", "read.table", "read.delim"),
    *("source", "list.files", "dir", "readr.read_file", "readr.read_lines"),
)
_DELETERS: Final = ("unlink", "file.remove", "fs.file_delete", "fs.dir_delete")
_MAKERS: Final = ("file.create", "dir.create", "sink", "pdf", "png", "save.image", "Sys.chmod", "cat_file")
_WRITERS: Final = (
    "writeLines",
    "saveRDS",
    "write.csv",
    "write.table",
    "writeChar",
    "writeBin",
    "dput",
    "dump",
    "write",
)
_NETWORK: Final = (
    *(
        "download.file",
        "url",
        "socketConnection",
        "serverSocket",
        "install.packages",
        "httr.GET",
        "httr.POST",
    ),
    *("curl.curl", "curl.curl_fetch_memory", "httr2.req_perform", "RCurl.getURL", "utils.download.file"),
)
_KILLERS: Final = ("tools.pskill", "pskill")
_ALLOCATORS: Final = (
    "numeric",
    "integer",
    "character",
    "logical",
    "complex",
    "raw",
    "double",
    "vector",
    "matrix",
)
_DECODERS: Final = (
    "base64enc.base64decode()",
    "jsonlite.base64_dec()",
    "rawToChar()",
    "openssl.base64_decode()",
    "chartr()",
)


def _evaluates_text(fact: Fact) -> bool:
    return fact.argument(0, "expr").name in (
        "parse()",
        "str2lang()",
        "str2expression()",
        "rlang.parse_expr()",
    )


def _parses_unwritten(fact: Fact) -> bool:
    text = fact.options.get("text")
    return text is not None and not text.is_constant


def _parses_decoded(fact: Fact) -> bool:
    return fact.options.get("text", Value()).name.startswith(_DECODERS)


def _writes_by_file(fact: Fact) -> bool:
    mode = fact.argument(1, "open").text or ""
    return any(letter in mode for letter in "wa") and outside(0, "description")(fact)


def _is_url(fact: Fact) -> bool:
    return path(lambda text: text.startswith(("http://", "https://", "ftp://")))(fact)


def _words(fact: Fact) -> Command | None:
    args = fact.argument(1, "args")
    return words_of(
        Value(items=(fact.argument(0, "command"), *(args.items or ((args,) if args.text else ()))))
    )


RULES: Final = RuleBook(
    (
        Sign(rule.PROCESS_START, _STARTERS),
        Sign(rule.SHELL_COMMAND, _SHELLS),
        Sign(rule.FORK, _FORKS),
        Sign(rule.FORK_BOMB, _FORKS, in_loop),
        Sign(rule.ENDLESS_PROCESS_LOOP, (*_SHELLS, *_STARTERS), in_endless_loop),
        Sign(rule.COMPUTED_CODE, ("eval", "evalq", "rlang.eval_tidy"), _evaluates_text),
        Sign(rule.COMPUTED_CODE, ("parse", "str2lang"), _parses_unwritten),
        Sign(rule.DECODED_CODE, ("parse",), _parses_decoded),
        Sign(rule.UNSAFE_UNPICKLING, ("unserialize",), no(comes_from("serialize()"))),
        Sign(rule.FOREIGN_FUNCTION, ("dyn.load", "library.dynam", ".Call", ".C", ".External", ".Fortran")),
        Sign(rule.FOREIGN_FUNCTION, ("Rcpp.sourceCpp", "Rcpp.cppFunction", "inline.cfunction")),
        Sign(rule.NETWORK, _NETWORK),
        Sign(rule.NETWORK, _READERS, _is_url),
        Sign(rule.METADATA_ADDRESS, ("",), is_metadata, frozenset({"text"})),
        Sign(rule.DELETE_OUTSIDE_WORKSPACE, _DELETERS, outside(0, "x")),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, _MAKERS, outside(0, "file")),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, _WRITERS, outside(1, "file")),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, _WRITERS, outside(1, "con")),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, ("cat",), outside(99, "file")),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, ("file",), _writes_by_file),
        Sign(rule.WRITE_OUTSIDE_WORKSPACE, ("file.copy", "file.rename", "file.symlink"), outside(1, "to")),
        Sign(rule.SYSTEM_SECRET, _READERS, secret(0, "file")),
        Sign(rule.ENDS_KERNEL, ("quit", "q")),
        Sign(rule.ENDS_KERNEL, _KILLERS, comes_from("Sys.getpid()")),
        Sign(rule.KILLS_SANDBOX, _KILLERS, number(-1, 0, 1)),
        Sign(rule.HUGE_ALLOCATION, _ALLOCATORS, huge(0, 1)),
        Sign(rule.HUGE_ALLOCATION, ("rep", "strrep"), huge(1)),
        Sign(
            rule.CHANGES_BUILTINS,
            ("assignInNamespace", "unlockBinding", "fixInNamespace", "trace", "rlang.env_binding_unlock"),
        ),
        Sign(rule.IMPORT_HOOK, ("setHook", ".libPaths", "attachNamespace"), has(0)),
        Sign(rule.ENVIRONMENT_DUMP, ("Sys.getenv",), no(has(0, "x"))),
    ),
    (ShellText(_SHELLS, text_at(0, "command")), ShellText(("system2", "processx.run"), _words)),
)
