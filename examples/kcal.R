# The private mean of examples/kcal.csv from R, and what a shuffled survey hides.
# Run: RETICULATE_PYTHON=.venv/bin/python Rscript examples/kcal.R examples/kcal.csv
library(reticulate)

ms <- import("metricshuffle")
arguments <- commandArgs(trailingOnly = TRUE)
people <- read.csv(if (length(arguments) > 0) arguments[1] else "examples/kcal.csv")

# Whole numbers need an L in R: 1000 is a double, and 1000L is whole.
query <- ms$Mean(ms$Integers(0L, 1000L, unit = "kcal"))
target <- ms$Target(epsilon = 1, delta = 1e-6, distance = 100)
plan <- ms$plan(query, target, users = nrow(people))
release <- plan$run(as.list(as.integer(people$kcal)))
cat(sprintf("mean %.1f, from %.1f to %.1f\n", release$value,
            release$interval(0.95)[[1]], release$interval(0.95)[[2]]))
cat(as.character(py_str(release$guarantee)), "\n")

survey <- ms$randomizers$KaryRandomizedResponse(8L, 1.0)
band <- ms$amplify(survey, users = 10000L)$epsilon(1e-6)
cat(sprintf("epsilon between %.6f and %.6f\n", band$lower, band$upper))
