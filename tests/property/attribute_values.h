// Values that an attribute of each form cannot have, and some that it can, as text: for an operand
// of at most eight dimensions, each less than 99 long, on so many ranks.
#pragma once

#include "rules/attributes/attributes.h"

#include <string>
#include <vector>

namespace spmd::property {

struct AttributeValues {
  std::vector<std::string> wrong, right;
};

// `right` is for an operand of that rank, at least two elements long where positions count.
inline AttributeValues attribute_values(rules::AttributeForm form, size_t rank, int64_t ranks) {
  using Form = rules::AttributeForm;
  std::string all = "0";
  for (size_t d = 1; d < rank; ++d)
    all += ", " + std::to_string(d);
  switch (form) {
  case Form::Any:
    return {};
  case Form::Flag:
    return {{"\"yes\"", "2.5", "7"}, {"true", "false", "1"}};
  case Form::Word:
    return {{"3"}, {}};
  case Form::Number:
    return {{"\"x\"", "[1]"}, {"1", "0.5"}};
  case Form::Whole:
    return {{"\"x\"", "1.5"}, {"-1", "3"}};
  case Form::Count:
    return {{"\"x\"", "-1", "[0.5]"}, {}};
  case Form::Positive:
    return {{"\"x\"", "0", "-2", "[1.5]"}, {"1"}};
  case Form::Dim:
    return {{"\"x\"", "9", "-9", "0.5", "[]", "[0, 0]"}, {"0", "-1", "[0]"}};
  case Form::Dims:
    return {{"\"x\"", "9", "[-9]", "[0.5]", "[0, 0]"}, {"0", "[-1]"}};
  case Form::NewDim:
    return {{"\"x\"", "9", "-9", "0.5"}, {"0", "-1", std::to_string(rank)}};
  case Form::Order:
    return {{"\"x\"", "[9]", "[0, 0, 0]", "[]"}, {"[" + all + "]"}};
  case Form::Extents:
    return {{"\"x\"", "[-2]", "[0.5]"}, {}};
  case Form::Trailing:
    return {{"\"x\"", "[99]", "[1.5]", "[1, 1, 1, 1, 1, 1, 1, 1, 1]"}, {}};
  case Form::Place:
    return {{"\"x\"", "99", "-99"}, {"0", "-1"}};
  case Form::Start:
    return {{"\"x\"", "99", "-99"}, {"0", "-1"}};
  case Form::End:
    return {{"\"x\"", "99, start = 1", "-99"}, {"1", "-1", "2147483647"}};
  case Form::Length:
    return {{"\"x\"", "99", "-1", "2, start = 1"}, {"1", "1, start = -1"}};
  case Form::Part:
    return {{"\"x\"", "99", "-1"}, {"1"}};
  case Form::DType:
    return {{"\"f99\""}, {"f32"}};
  case Form::Reduction:
    return {{"\"average\"", "7"}, {"\"mean\"", "1"}};
  case Form::Rank:
    return {{"\"x\"", std::to_string(ranks), "-1", "0.5"}, {"0", std::to_string(ranks - 1)}};
  case Form::Pairs:
    return {{"3", "[[0, 1, 2]]", "[[0, 1], [0, 2]]", "[[0, 1], [2, 1]]",
             "[[0, " + std::to_string(ranks) + "]]", "[[-1, 0]]"},
            {"[[0, 1], [1, 0]]", "[]"}};
  case Form::Axes:
    return {{"3", "nowhere", "@f"}, {}};
  case Form::Kinds:
  case Form::Type:
    return {{"3", "@f"}, {}};
  case Form::Types:
    return {{"3", "@f"}, {}};
  case Form::Factor:
    return {{"\"x\"", "@f"}, {}};
  case Form::Function:
    return {{"3", "\"x\"", "[1]"}, {}};
  case Form::Mesh:
    return {{"3", "\"nowhere\""}, {}};
  case Form::NoVjp:
    return {{"\"no\"", "3"}, {"none"}};
  }
  return {};
}

} // namespace spmd::property
