# Plots: a png device of ours writes each page to a file; a page that is finished is sent and removed.

plot_folder <- function() file.path(tempdir(check = TRUE), "plots")
devices_opened <- 0L

open_device <- function(...) {
    dir.create(plot_folder(), showWarnings = FALSE)
    devices_opened <<- devices_opened + 1L
    grDevices::png(
        file.path(plot_folder(), sprintf("%06d-%%06d.png", devices_opened)),
        width = getOption("repr.plot.width", 7), height = getOption("repr.plot.height", 7), units = "in",
        res = getOption("repr.plot.res", 120), pointsize = getOption("repr.plot.pointsize", 12), type = "cairo"
    )
    grDevices::dev.control(displaylist = "enable")
}

close_devices <- function() {
    for (number in grDevices::dev.list()) {
        path <- attr(.Devices[[number]], "filepath")
        if (is.character(path) && startsWith(path, plot_folder())) grDevices::dev.off(number)
    }
}

send_plots <- function(...) {
    paths <- sort(list.files(plot_folder(), full.names = TRUE))
    for (path in paths[file.size(paths) > 0]) {  # the file of the page that is being drawn is empty
        png <- readBin(path, "raw", file.size(path))
        unlink(path)
        getOption("jupyter.base_display_func")(list("image/png" = gsub("\n", "", jsonlite::base64_enc(png), fixed = TRUE)))
    }
}
