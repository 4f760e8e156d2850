// What the checker takes for a move of elements, against what the row does to data.
#include "rules/apply.h"
#include "rules/ops/registry.h"
#include "tests/unit/catch.h"
#include "tests/unit/row_sample.h"

#include "llvm/ADT/STLExtras.h"

#include <set>

namespace spmd::test {
namespace {

// Rows of which the attributes, or the number of the operands, say more than the equation.
struct Example {
  std::string_view row;
  const char *inputs, *text;
  std::vector<Dims> results = {}; // where the rules do not tell
};
const Example kExamples[] = {
    {"cast", "f64[2, 3]", "%r = cast %0 { dtype = f64 }"},
    {"reshape", "f64[2, 3]", "%r = reshape %0 { shape = [3, 2] }"},
    {"view_as", "f64[2, 3]; f64[3, 2]", "%r = view_as %0, %1"},
    {"permute_dims", "f64[2, 3, 4]", "%r = permute_dims %0 { dims = [2, 0, 1] }"},
    {"expand", "f64[1, 3]", "%r = expand %0 { size = [2, 3] }"},
    {"expand_as", "f64[1, 3]; f64[2, 3]", "%r = expand_as %0, %1"},
    {"repeat", "f64[2, 3]", "%r = repeat %0 { repeats = [2, 1] }"},
    {"repeat_interleave",
     "f64[2, 3]",
     "%r = repeat_interleave %0 { repeats = 2, dim = 1 }",
     {{2, 6}}},
    {"cat", "f64[2, 3]; f64[1, 3]", "%r = cat [%0, %1] { dim = 0 }"},
    {"stack", "f64[2, 3]; f64[2, 3]", "%r = stack [%0, %1] { dim = 1 }"},
    {"block_diag", "f64[2, 3]; f64[1, 2]", "%r = block_diag [%0, %1]", {{3, 5}}},
    {"split", "f64[4, 3]", "%r, %s = split %0 { split_size = 2, dim = 0 }"},
    {"slice_backward",
     "f64[2, 3]",
     "%r = slice_backward %0 { input_sizes = [5, 3], dim = 0, start = 1, end = 3, step = 1 }",
     {{5, 3}}},
    {"rot90", "f64[2, 3]", "%r = rot90 %0 { k = 1, dims = [0, 1] }", {{3, 2}}},
    {"roll", "f64[4, 3]", "%r = roll %0 { shifts = [1], dims = [0] }"},
    {"reflection_pad", "f64[2, 4]", "%r = reflection_pad %0 { padding = [1, 2] }", {{2, 7}}},
    {"replication_pad", "f64[2, 4]", "%r = replication_pad %0 { padding = [1, 2] }", {{2, 7}}},
    {"circular_pad", "f64[1, 2, 4]", "%r = circular_pad %0 { pad = [1, 2] }", {{1, 2, 7}}},
    {"diagonal", "f64[3, 4]", "%r = diagonal %0", {{3}}},
    {"diag_embed", "f64[3]", "%r = diag_embed %0", {{3, 3}}},
    {"unfold", "f64[5, 2]", "%r = unfold %0 { dimension = 0, size = 2, step = 1 }", {{4, 2, 2}}},
    {"as_strided", "f64[4, 3]", "%r = as_strided %0 { size = [2, 3], stride = [3, 1] }", {{2, 3}}},
    {"pixel_shuffle",
     "f64[1, 4, 2, 2]",
     "%r = pixel_shuffle %0 { upscale_factor = 2 }",
     {{1, 1, 4, 4}}},
    {"pixel_unshuffle",
     "f64[1, 1, 4, 4]",
     "%r = pixel_unshuffle %0 { downscale_factor = 2 }",
     {{1, 4, 2, 2}}},
    {"im2col",
     "f64[1, 2, 4, 4]",
     "%r = im2col %0 { kernel_size = [2, 2], dilation = [1, 1], padding = [0, 0], stride = [2, 2] "
     "}",
     {{1, 8, 4}}},
    {"channel_shuffle", "f64[1, 4, 2, 2]", "%r = channel_shuffle %0 { groups = 2 }"},
};
// Pairs of real numbers are complex ones: the tensors here are real.
constexpr std::string_view kComplex[] = {"view_as_real", "view_as_complex"};

Statement statement_of(const rules::OpDef &row) {
  for (const Example &example : kExamples)
    if (example.row == row.name)
      return Statement(example.inputs, example.text, example.results);
  RowSample sample(row, [](unsigned factor) { return 2 + factor % 3; });
  return Statement(sample.inputs, sample.text(), sample.results);
}

// 0 stands where a result is filled up.
void check_moves(Statement &statement) {
  std::mt19937 random(7);
  const std::vector<Tensor> args = statement.draw(random, Domain::F64);
  const std::vector<Tensor> results = statement.run(args, Domain::F64);
  INFO(statement.problem());
  CHECK(!results.empty());
  std::set<double> known{0};
  for (const Tensor &arg : args)
    known.insert(arg.of<double>().begin(), arg.of<double>().end());
  for (const Tensor &result : results)
    CHECK(llvm::all_of(result.of<double>(), [&](double cell) { return known.count(cell) != 0; }));
}

} // namespace

TEST_CASE("rows that are said to move elements make no new ones") {
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family) {
      const llvm::StringRef name(row.name.data(), row.name.size());
      if (!rules::moves_elements(rules::resolve_spelling(name, "spmd")) ||
          llvm::is_contained(kComplex, row.name))
        continue;
      INFO(row.name);
      Statement statement = statement_of(row);
      INFO(statement.problem());
      CHECK(statement.prepared());
      if (statement.prepared())
        check_moves(statement);
    }
}

} // namespace spmd::test
