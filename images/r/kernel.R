# The R kernel's own process: IRkernel's sockets and messages, with cells that R itself runs.
#
#   R --vanilla --no-echo -f kernel.R --args CONNECTION_FILE
#
# IRkernel runs cells through evaluate(), which holds printed text back in a file until an expression has ended, loses
# what programs and C code print, and goes on behind an error on the same line. Here printed text goes where R writes
# it: to the process's own stdout and stderr, which the guest program reads. Marks in stdout (see guest/console.py) say
# where a message belongs and what of the text is stderr's.
# Whatever can jump out of a cell is caught here: after the last line of this file, R would end.

cells <- new.env(parent = asNamespace("IRkernel"))
for (name in c("plots.R", "values.R")) sys.source(file.path("/opt/aeolus/r", name), cells)
evalq(envir = cells, {

mark <- paste0("\x1e", Sys.getenv("AEOLUS_MARK"))
Sys.unsetenv("AEOLUS_MARK")
marks <- 0L
console <- NULL

# Writes to the process's stdout past every sink() of the code.
write_console <- function(...) {
    text <- charToRaw(paste0(...))
    write <- function() {
        writeBin(text, console)
        flush(console)
    }
    suspendInterrupts(tryCatch(write(), error = function(e) {  # closeAllConnections() closes ours too
        console <<- file("/proc/self/fd/1", "wb", raw = TRUE)
        write()
    }))
}

write_stderr <- function(text) write_console(mark, "E;", text, mark, "O;")

# JSON must be valid UTF-8, and R's strings need not be.
valid <- function(value) {
    if (is.list(value)) {
        value[] <- lapply(value, valid)
        return(value)
    }
    if (!is.character(value)) return(value)
    value <- enc2utf8(value)
    bad <- !validUTF8(value)
    value[bad] <- iconv(value[bad], "UTF-8", "UTF-8", sub = "\ufffd")
    value
}

# --- Cells.

run_cell <- function(code, on_value) {
    calls <- NULL
    depth <- 0L
    run <- function() {
        for (expression in parse(text = code, keep.source = TRUE)) {
            depth <<- sys.nframe()
            shown <- withVisible(eval(expression, globalenv()))
            if (shown$visible) on_value(shown$value)
            IRkernel:::set_last_value(shown$value)
            send_plots()
        }
    }
    tryCatch(
        withRestarts(
            withCallingHandlers(
                allowInterrupts(run()),
                message = show_message,
                warning = show_warning,
                error = function(e) calls <<- sys.calls()
            ),
            abort = function() failure("abort", "the code was aborted")
        ),
        interrupt = function(e) failure("interrupt", "the code was interrupted"),
        aeolus_quit = identity,
        error = function(e) error_content(e, calls, depth)
    )
}

show_message <- function(condition) {
    if (sink.number("message") != 2L) return()
    text <- conditionMessage(condition)
    if (inherits(condition, "rlang_message")) text <- paste0(sub("\n$", "", text), "\n")  # rlang adds it at the end
    write_stderr(text)
    tryInvokeRestart("muffleMessage")
}

show_warning <- function(condition) {
    level <- getOption("warn", 0)
    if (level >= 2 || sink.number("message") != 2L) return()  # R makes an error of it, or writes it itself
    if (level >= 0) {
        call <- conditionCall(condition)
        top <- is.null(call) || identical(call, quote(eval(expression, globalenv())))
        where <- if (top) "Warning:" else paste("Warning in", deparse(call, nlines = 1L)[[1]], ":")
        write_stderr(paste0(where, " ", conditionMessage(condition), "\n"))
    }
    tryInvokeRestart("muffleWarning")
}

failure <- function(name, message, traceback = character()) {
    list(ename = name, evalue = message, traceback = as.list(c(traceback, paste0(name, ": ", message))))
}

error_content <- function(error, calls, depth) {
    message <- conditionMessage(error)
    if (depth == 0L) return(failure("ParseError", message))
    failure(class(error)[[1]], message, traceback_lines(calls, depth))
}

# What stands between the cell and the error: without our own calls below it, and R's above it.
traceback_lines <- function(calls, depth) {
    calls <- utils::tail(calls, -(depth + 3L))  # withVisible(), and eval() twice
    ours <- vapply(calls, function(call) identical(call[[1]], quote(.handleSimpleError)), TRUE)
    calls <- calls[cumsum(ours) == 0L]
    if (length(calls) && is.function(calls[[length(calls)]][[1]])) calls <- calls[-length(calls)]  # our handler
    if (length(calls) > 40L) calls <- c(utils::head(calls, 20L), list(quote(...)), utils::tail(calls, 20L))
    lines <- vapply(calls, function(call) substr(deparse(call, nlines = 1L)[[1]], 1L, 200L), "")
    if (length(lines)) paste0(seq_along(lines), ". ", lines)
}

# --- The kernel.

kernel <- NULL

end_process <- function(status) {
    # What was sent is lost if the process ends before the context has passed it on.
    for (socket in kernel$sockets) pbdZMQ::zmq.close(socket)
    pbdZMQ::zmq.ctx.destroy(kernel$zmqctx)
    backup_env$base_quit("no", status, FALSE)
}

# setRefClass() says that it checks less without codetools.
define_class <- function(...) suppressMessages(setRefClass(..., where = cells))

CellExecutor <- define_class("CellExecutor", contains = "Executor", methods = list(
    execute = function(request) {
        # An interrupt that came too late for the cell before must not hit this one.
        tryCatch(allowInterrupts(Sys.sleep(0)), interrupt = function(e) NULL)
        current_request <<- request
        say <- function(type, content) send_response(type, request, "iopub", content)
        say("execute_input", list(code = request$content$code, execution_count = execution_count))
        options(jupyter.base_display_func = function(data, metadata = NULL) {
            say("display_data", list(data = data, metadata = if (is.null(metadata)) namedlist() else metadata))
            invisible(TRUE)
        })
        problem <- run_cell(enc2utf8(request$content$code), function(value) {
            data <- value_bundle(value)
            if (is.null(data)) return()
            say("execute_result", list(data = data, metadata = namedlist(), execution_count = execution_count))
        })
        close_devices()
        send_plots()
        finish(request, problem)
    },
    finish = function(request, problem) {
        ends <- inherits(problem, "aeolus_quit")
        reply <- list(status = "ok", execution_count = execution_count, user_expressions = namedlist())
        if (ends) {
            if (problem$status != 0L) end_process(problem$status)
            reply$payload <- list(list(source = "ask_exit", keepkernel = FALSE))
        } else if (!is.null(problem$ename)) {
            if (problem$ename != "interrupt") send_response("error", request, "iopub", problem)
            reply <- c(problem, list(status = "error", execution_count = execution_count))
        }
        send_response("execute_reply", request, "shell", reply)
        execution_count <<- execution_count + 1L
        if (ends) {
            send_response("status", request, "iopub", list(execution_state = "idle"))
            end_process(0L)
        }
    },
    readline = function(prompt = "") ask_host(prompt, FALSE),
    get_pass = function(prompt = "") ask_host(prompt, TRUE),
    ask_host = function(prompt, password) {
        refuse <- function(...) stop(errorCondition(paste0(...), class = "NoInputError", call = NULL))
        if (!isTRUE(current_request$content$allow_stdin)) refuse("the code asks for input, and there is nobody to answer")
        content <- list(prompt = paste0(prompt, ""), password = password)
        send_response("input_request", current_request, "stdin", content)
        answer <- handle_stdin()
        if (identical(answer, "\x04")) refuse("end of input")
        answer
    },
    quit = function(save = "default", status = 0, runLast = TRUE) {
        if (runLast && is.function(globalenv()$.Last)) globalenv()$.Last()
        condition <- structure(class = c("aeolus_quit", "condition"), list(status = as.integer(status)))
        signalCondition(condition)
        end_process(status)  # nobody has caught it: not in a cell
    }
))

CellKernel <- define_class("CellKernel", contains = "Kernel", methods = list(
    initialize = function(...) {
        callSuper(...)
        # ZMQ_XPUB_NODROP: a socket that nobody reads for a while waits, where it would lose messages.
        pbdZMQ::zmq.setsockopt(sockets$iopub, 69L, 1L)
        executor <<- CellExecutor$new(
            send_response = .self$send_response, handle_stdin = .self$handle_stdin,
            abort_queued_messages = .self$abort_queued_messages
        )
    },
    send_response = function(msg_type, parent_msg, socket_name, content) {
        suspendInterrupts({
            content <- valid(content)
            if (socket_name == "iopub") {
                marks <<- marks + 1L
                content$mark <- marks
                write_console(mark, "M", marks, ";")
            }
            callSuper(msg_type, parent_msg, socket_name, content)
        })
    },
    msg_to_wire = function(msg) {
        # As the method above, with numbers as they are and missing values as null.
        pack <- function(part) charToRaw(toJSON(part, auto_unbox = TRUE, digits = NA, na = "null"))
        parts <- lapply(unname(msg[c("header", "parent_header", "metadata", "content")]), pack)
        c(msg$identities, list(charToRaw("<IDS|MSG>")), list(charToRaw(sign_msg(parts))), parts)
    },
    handle_shell = function() suspendInterrupts(callSuper())
))

# Loads what the first plot and the first value would wait for.
warm_up <- function() {
    graphics::plot(1)
    close_devices()
    unlink(plot_folder(), recursive = TRUE)
    value_bundle(data.frame(a = 1))
}

main <- function() {
    options(
        bitmapType = "cairo", device = open_device, max.print = 10000L, keep.source = TRUE, menu.graphics = FALSE,
        cli.num_colors = 1L, crayon.enabled = FALSE,
        pager = function(files, header, title, delete.file) {
            for (path in files) writeLines(readLines(path))
            if (delete.file) unlink(files)
        }
    )
    warm_up()
    setHook("before.plot.new", send_plots)
    setHook("before.grid.newpage", send_plots)
    kernel <<- CellKernel$new(connection_file = commandArgs(TRUE)[[1]])
    replace_in_package("base", "readline", kernel$executor$readline)
    replace_in_package("base", "quit", kernel$executor$quit)
    replace_in_package("base", "q", kernel$executor$quit)
    repeat tryCatch(kernel$run(), interrupt = function(e) NULL)
}

})
local({ main <- cells$main; rm(cells, name, envir = globalenv()); main() })
