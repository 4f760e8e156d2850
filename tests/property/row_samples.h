// Small applications of the ops whose dimensions follow from attributes.
#pragma once

#include <span>
#include <string>

namespace spmd::property {

struct RowSample {
  const char *inputs;    // shapes, separated by `;`: %0, %1, ...
  const char *statement; // lists stand as lists
};

std::span<const RowSample> row_samples();
// A program that ends with the statement.
std::string sample_program(const RowSample &sample);

} // namespace spmd::property
