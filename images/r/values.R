# Values: what is shown of a visible value, as a MIME bundle.

HTML_CLASSES <- c("data.frame", "matrix", "htmlwidget", "shiny.tag", "shiny.tag.list")

value_bundle <- function(value) {
    # Printing is what draws a value of ggplot2 or lattice, too; these print no text.
    text <- paste(utils::capture.output(print(value)), collapse = "\n")
    if (!nzchar(text)) return(NULL)
    bundle <- list("text/plain" = text)
    if (inherits(value, HTML_CLASSES)) {
        bundle[["text/html"]] <- tryCatch(repr::repr_html(value), error = function(e) NULL)
    }
    if (is.data.frame(value)) {
        bundle[["application/vnd.dataresource+json"]] <- tryCatch(data_resource(value), error = function(e) NULL)
    }
    bundle
}

# A data frame as a tabular data resource, https://specs.frictionlessdata.io/tabular-data-resource/ , with two fields
# more: `shape`, how many rows and columns there are in truth, and `truncated`, whether any of it was left out.

MAX_ROWS <- 1000L
MAX_COLUMNS <- 100L
MAX_BYTES <- 256L * 1024L
MAX_TEXT_CHARACTERS <- 1000L

data_resource <- function(table) {
    shape <- dim(table)
    has_names <- .row_names_info(table) > 0L
    table <- as.data.frame(table)[seq_len(min(shape[[1]], MAX_ROWS)), seq_len(min(shape[[2]], MAX_COLUMNS)), drop = FALSE]
    key <- character()
    if (has_names) {
        table <- cbind(row = rownames(table), table)
        key <- "row"
    }
    names(table) <- make.unique(substr(names(table), 1L, MAX_TEXT_CHARACTERS))
    types <- vapply(table, column_type, "")
    columns <- lapply(table, column_cells)
    fitting <- cumsum(Reduce(`+`, lapply(columns, cell_bytes), sum(nchar(names(table))))) <= MAX_BYTES
    columns <- lapply(columns, function(column) column[fitting])
    list(
        schema = list(
            fields = unname(Map(function(name, type) list(name = name, type = type), names(table), types)),
            primaryKey = as.list(key)
        ),
        data = structure(columns, class = "data.frame", row.names = seq_len(sum(fitting))),
        shape = shape,
        truncated = any(shape > c(MAX_ROWS, MAX_COLUMNS)) || !all(fitting) || any(vapply(columns, is_cut, TRUE))
    )
}

column_type <- function(column) {
    if (is.factor(column) || is.character(column)) "string"
    else if (inherits(column, "Date")) "date"
    else if (inherits(column, "POSIXct")) "datetime"
    else if (is.logical(column)) "boolean"
    else if (is.object(column)) "any"
    else if (is.integer(column)) "integer"
    else if (is.numeric(column)) "number"
    else "any"
}

# Values that JSON has: booleans, finite numbers and text.
column_cells <- function(column) {
    if (is.logical(column)) return(column)
    if (is.numeric(column) && !is.object(column)) {
        infinite <- is.infinite(column)
        if (!any(infinite)) return(as.vector(column))
        cells <- as.list(column)
        cells[infinite] <- ifelse(column[infinite] > 0, "INF", "-INF")
        return(cells)
    }
    missing <- if (is.list(column)) logical(length(column)) else is.na(column)
    text <- valid(column_text(column))
    text[!missing] <- cut_text(text[!missing])
    text[missing] <- NA
    text
}

column_text <- function(column) {
    if (is.list(column)) vapply(column, function(cell) toString(cell), "")
    else if (inherits(column, "POSIXct")) format(column, "%Y-%m-%dT%H:%M:%S%z")
    else as.character(column)
}

cut_text <- function(text) {
    long <- nchar(text) > MAX_TEXT_CHARACTERS
    text[long] <- paste0(substr(text[long], 1L, MAX_TEXT_CHARACTERS), "\u2026")
    text
}

is_cut <- function(cells) is.character(cells) && any(nchar(cells) > MAX_TEXT_CHARACTERS, na.rm = TRUE)

cell_bytes <- function(cells) nchar(as.character(cells), "bytes", keepNA = FALSE)
