// The program of one input as the script of the HTML report reads it.
#pragma once

#include "checker/report/report.h"

#include <string>

namespace spmd::checker {

// JSON in which no `<` stands. `null` of an input that could not be read.
std::string page_data(const Report &report, size_t input);

} // namespace spmd::checker
