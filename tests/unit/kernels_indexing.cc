// Known values of rows that index, scatter and order; gradients against central differences.
#include "runtime/tensor/number.h"
#include "tests/unit/catch.h"
#include "tests/unit/kernel_case.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace spmd::runtime {
namespace {

using Numbers = std::vector<double>;

struct KnownCase {
  const char *inputs, *statement;
  std::vector<Numbers> args, results;
};

const KnownCase kKnown[] = {
    {"f64[3, 2]; i64[2, 2]",
     "%y = gather %0, %1 { dim = 0 }",
     {{1, 2, 3, 4, 5, 6}, {2, 0, 1, 1}},
     {{5, 2, 3, 4}}},
    {"f64[3, 2]; i64[2]",
     "%y = index_select %0, %1 { dim = 0 }",
     {{1, 2, 3, 4, 5, 6}, {2, 0}},
     {{5, 6, 1, 2}}},
    {"f64[3, 2]; i64[2, 2]",
     "%y = embedding %0, %1",
     {{1, 2, 3, 4, 5, 6}, {0, 2, 1, 1}},
     {{1, 2, 5, 6, 3, 4, 3, 4}}},
    {"f64[2, 3]; i64[2]",
     "%y = gather_masked %0, %1 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6}, {2, 0}},
     {{3, 4}}},
    {"f64[2, 3]; i64[2]", "%y = take %0, %1", {{1, 2, 3, 4, 5, 6}, {5, -6}}, {{6, 1}}},
    {"f64[2, 3]; i64[2]; i64[2]",
     "%y = aten.index.Tensor %0, [%1, %2]",
     {{1, 2, 3, 4, 5, 6}, {1, 0}, {2, 2}},
     {{6, 3}}},
    {"f64[2, 3]; i64[2]",
     "%y = aten.index.Tensor %0, [null, %1]",
     {{1, 2, 3, 4, 5, 6}, {2, 0}},
     {{3, 1, 6, 4}}},
    {"f64[2, 2, 2]; i64[3]; i64[3]",
     "%y = aten.index.Tensor %0, [%1, null, %2]",
     {{1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 1}, {1, 0, 1}},
     {{2, 4, 5, 7, 6, 8}}},
    {"i64[3]", "%y = one_hot %0 { num_classes = 3 }", {{2, 0, 1}}, {{0, 0, 1, 1, 0, 0, 0, 1, 0}}},
    {"f64[2, 3]; i64[2, 2]; f64[2, 2]",
     "%y = aten.scatter.src %0, %1, %2 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6}, {0, 2, 1, 1}, {10, 20, 30, 40}},
     {{10, 2, 20, 4, 40, 6}}},
    {"f64[2, 3]; i64[2, 1]",
     "%y = aten.scatter.value %0, %1 { dim = 1, value = 9 }",
     {{1, 2, 3, 4, 5, 6}, {0, 2}},
     {{9, 2, 3, 4, 5, 9}}},
    {"f64[2, 3]; i64[2, 2]; f64[2, 2]",
     "%y = aten.scatter_add %0, %1, %2 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6}, {0, 2, 1, 1}, {10, 20, 30, 40}},
     {{11, 2, 23, 4, 75, 6}}},
    {"f64[3, 2]; i64[2]; f64[2, 2]",
     "%y = aten.index_add %0, %1, %2 { dim = 0, alpha = 2 }",
     {{1, 2, 3, 4, 5, 6}, {2, 2}, {1, 2, 3, 4}},
     {{1, 2, 3, 4, 13, 18}}},
    {"f64[2, 3]; i64[2]; i64[2]; f64[2]",
     "%y = aten.index_put %0, [%1, %2], %3",
     {{1, 2, 3, 4, 5, 6}, {0, 1}, {2, 0}, {8, 9}},
     {{1, 2, 8, 9, 5, 6}}},
    {"f64[3]; i64[2]; f64[2]",
     "%y = aten.index_put %0, [%1], %2 { accumulate = true }",
     {{1, 2, 3}, {1, 1}, {8, 9}},
     {{1, 19, 3}}},
    {"f64[2, 3]; i64[2, 3]; f64[2, 3]",
     "%y = aten.scatter_reduce %0, %1, %2 { dim = 1, reduce = \"amax\" }",
     {{1, 2, 3, 4, 5, 6}, {0, 0, 1, 2, 2, 2}, {7, 8, -9, 1, 2, 3}},
     {{8, 2, 3, 4, 5, 6}}},
    {"f64[3]; i64[3]; f64[3]",
     "%y = aten.scatter_reduce %0, %1, %2 { dim = 0, reduce = \"mean\", include_self = false }",
     {{1, 2, 3}, {0, 0, 2}, {7, 9, 5}},
     {{8, 2, 5}}},
    {"f64[2, 2]; bool[2, 2]; f64[3]",
     "%y = aten.masked_scatter %0, %1, %2",
     {{1, 2, 3, 4}, {1, 0, 0, 1}, {7, 8, 9}},
     {{7, 2, 3, 8}}},
    {"f64[3, 2]; i64[3]",
     "%y = aten.embedding_dense_backward %0, %1 { num_weights = 4, padding_idx = 1 }",
     {{1, 2, 3, 4, 5, 6}, {3, 1, 3}},
     {{0, 0, 0, 0, 0, 0, 6, 8}}},
    {"f64[2, 3]",
     "%y, %i = sort %0 { dim = 1, descending = true }",
     {{1, 3, 3, 6, 4, 5}},
     {{3, 3, 1, 6, 5, 4}, {1, 2, 0, 0, 2, 1}}},
    {"f64[2, 3]",
     "%y, %i = topk %0 { k = 2, dim = 1 }",
     {{1, 3, 3, 6, 4, 5}},
     {{3, 3, 6, 5}, {1, 2, 0, 2}}},
    {"f64[3]", "%y = argsort %0", {{2, kNaN, 1}}, {{2, 0, 1}}},
    {"f64[4]; f64[3]", "%y = searchsorted %0, %1", {{1, 2, 2, 3}, {2, 0, 9}}, {{1, 0, 4}}},
    {"f64[4]; f64[3]",
     "%y = searchsorted %0, %1 { right = true }",
     {{1, 2, 2, 3}, {2, 0, 9}},
     {{3, 0, 4}}},
    {"f64[3]; f64[2]", "%y = isin %0, %1", {{1, 2, 3}, {3, 1}}, {{1, 0, 1}}},
    {"f64[2, 2]; i64[2, 2]",
     "%y = value_selecting_backward %0, %1 { dim = 1, sizes = [2, 3] }",
     {{1, 2, 3, 4}, {2, 0, 1, 1}},
     {{2, 0, 1, 0, 7, 0}}},
    {"f64[3, 2]; i64[2, 1]",
     "%y = gather %0, %1 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6}, {1, -2}},
     {{2, 3}}},
    {"f64[2, 3, 2]; i64[4]",
     "%y = index_select %0, %1 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 2, 0, -1}},
     {{5, 6, 5, 6, 1, 2, 5, 6, 11, 12, 11, 12, 7, 8, 11, 12}}},
    {"f64[3, 2]; bool[3]",
     "%y = aten.index_put %0, [%1], 9.0",
     {{1, 2, 3, 4, 5, 6}, {1, 0, 1}},
     {{9, 9, 3, 4, 9, 9}}},
    {"f64[3, 2]; i64[3]; f64[2]",
     "%y = aten.index_put %0, [%1], %2 { accumulate = true }",
     {{1, 2, 3, 4, 5, 6}, {1, 1, -1}, {10, 20}},
     {{1, 2, 23, 44, 15, 26}}},
    {"f64[2, 3, 2]; i64[2]; f64[2, 2, 2]",
     "%y = aten.index_add %0, %1, %2 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}},
     {{1, 2, 3, 4, 9, 12, 7, 8, 9, 10, 23, 26}}},
    {"f64[3, 2]; i64[3]; f64[3, 2]",
     "%y = aten.index_copy %0, %1, %2 { dim = 0 }",
     {{1, 2, 3, 4, 5, 6}, {2, 0, 2}, {10, 20, 30, 40, 50, 60}},
     {{30, 40, 3, 4, 50, 60}}},
    {"f64[2, 3]; i64[1, 2]; f64[2, 2]",
     "%y = aten.scatter.src %0, %1, %2 { dim = 1 }",
     {{1, 2, 3, 4, 5, 6}, {2, 2}, {10, 20, 30, 40}},
     {{1, 2, 20, 4, 5, 6}}},
    {"f64[4, 2]",
     "%y, %i = sort %0 { dim = 0 }",
     {{3, kNaN, 1, 0, 3, -0.0, -2, 7}},
     {{-2, 0, 1, 0, 3, 7, 3, kNaN}, {3, 1, 1, 2, 0, 3, 2, 0}}},
};

// What devices have no commands for.
bool is_of_the_host(llvm::StringRef statement) {
  return llvm::any_of(
      llvm::ArrayRef<llvm::StringRef>{"scatter_reduce", "masked_scatter", "searchsorted", "isin"},
      [&](llvm::StringRef word) { return statement.contains(word); });
}

bool is_same(const Numbers &a, const Numbers &b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

} // namespace

TEST_CASE("rows that index give known values") {
  for (const KnownCase &each : kKnown) {
    INFO(each.statement << " of " << each.inputs);
    KernelCase test(each.inputs, each.statement);
    CHECK(test.problem == "");
    if (!test.problem.empty())
      continue;
    for (size_t i = 0; i < each.args.size(); ++i)
      test.args[i].of<double>() = each.args[i];
    CHECK(test.run() == "");
    for (size_t r = 0; r < each.results.size(); ++r)
      CHECK(is_same(test.results[r].of<double>(), each.results[r]));
    CHECK(test.has_commands() != is_of_the_host(each.statement));
  }
}

TEST_CASE("gradients of rows that index") {
  for (const KnownCase &each : kKnown) {
    INFO(each.statement << " of " << each.inputs);
    KernelCase test(each.inputs, each.statement);
    if (!test.problem.empty() || !test.row().gradient)
      continue;
    for (size_t i = 0; i < each.args.size(); ++i)
      test.args[i].of<double>() = each.args[i];
    // Away from ties, where the extremum has no derivative.
    for (size_t i = 0; i < test.args[0].of<double>().size(); ++i)
      test.args[0].of<double>()[i] += 0.1 * static_cast<double>(i);
    for (double &cell : test.args[0].of<double>())
      cell = std::isnan(cell) ? 20 : cell;
    std::mt19937_64 random(5);
    CHECK(gradient_problem(test, random) == "");
  }
}

TEST_CASE("a position that is none is an error") {
  KernelCase test("f64[3, 2]; i64[2]", "%y = index_select %0, %1 { dim = 0 }");
  test.args[1].of<double>() = {0, 3};
  CHECK(test.run() == "`index_select` cannot be run: index 3 is not below 3");
}

} // namespace spmd::runtime
