// Small applications of the ops whose dimensions follow from attributes.
#pragma once

#include "tests/property/equation_plan.h"

#include <span>
#include <string>

namespace spmd::property {

struct RowSample {
  const char *inputs;    // shapes, separated by `;`: %0, %1, ...
  const char *statement; // lists stand as lists
};

std::span<const RowSample> row_samples();

// A sample as the rules see it: its row, and the dimensions that they give it.
struct ReadSample {
  const rules::OpDef *row = nullptr;
  ShapePlan plan;
  std::vector<std::vector<int>> inputs; // extents
  std::vector<bool> integer;            // per input
  std::vector<size_t> order;            // the input that each tensor of the plan is
  unsigned results = 0;
};
ReadSample read_sample(const RowSample &sample);

} // namespace spmd::property
