// Rows whose equation is the value, against loops over all indices; and matrix products by BLAS
// against own loops.
#include "runtime/equation/equation.h"
#include "runtime/equation/product.h"

#include "rules/ops/registry.h"
#include "tests/unit/catch.h"
#include "tests/unit/run_statement.h"

#include <cmath>

namespace spmd::test {
namespace {

using runtime::Residue;

// An einsum in letters, one list per operand, then that of the result; numbers are products of all.
template <class T>
std::vector<T> brute_force(const std::vector<std::string> &operands, const std::string &result,
                           const std::vector<Tensor> &args, const Dims &result_dims) {
  std::string letters;
  std::vector<int64_t> extents;
  auto note = [&](const std::string &of, const Dims &dims) {
    for (size_t d = 0; d < of.size(); ++d)
      if (letters.find(of[d]) == letters.npos)
        letters += of[d], extents.push_back(dims[d]);
      else if (extents[letters.find(of[d])] == 1)
        extents[letters.find(of[d])] = dims[d];
  };
  for (size_t i = 0; i < operands.size(); ++i)
    note(operands[i], args[i].dims);
  note(result, result_dims);
  std::vector<int64_t> at(letters.size(), 0);
  auto place = [&](const std::string &of, const Dims &dims) {
    int64_t found = 0;
    for (size_t d = 0; d < of.size(); ++d)
      found = found * dims[d] + (dims[d] == 1 ? 0 : at[letters.find(of[d])]);
    return static_cast<size_t>(found);
  };
  std::vector<T> made(static_cast<size_t>(runtime::count(result_dims)));
  for (int64_t points = runtime::count(extents); points-- > 0;) {
    T product(1);
    for (size_t i = 0; i < operands.size(); ++i)
      product = product * args[i].of<T>()[place(operands[i], args[i].dims)];
    made[place(result, result_dims)] += product;
    for (size_t l = letters.size(); l-- > 0;)
      if (++at[l] < extents[l])
        break;
      else
        at[l] = 0;
  }
  return made;
}

struct Case {
  const char *inputs, *text;
  std::vector<std::string> operands;
  const char *result;
};

const Case kCases[] = {
    {"f64[3, 4]; f64[4, 5]", "%r = matmul %0, %1", {"mk", "kn"}, "mn"},
    {"f64[2, 3, 4]; f64[4, 5]", "%r = matmul %0, %1", {"bmk", "kn"}, "bmn"},
    {"f64[2, 1, 3, 4]; f64[5, 4, 6]", "%r = matmul %0, %1", {"abmk", "bkn"}, "abmn"},
    {"f64[4]; f64[4]", "%r = matmul %0, %1", {"k", "k"}, ""},
    {"f64[7, 4]; f64[4]", "%r = matmul %0, %1", {"mk", "k"}, "m"},
    {"f64[4]; f64[2, 4, 3]", "%r = matmul %0, %1", {"k", "bkn"}, "bn"},
    {"f64[20, 30]; f64[30, 40]", "%r = matmul %0, %1", {"mk", "kn"}, "mn"},
    {"f64[3, 20, 30]; f64[40, 30]", "%r = linear %0, %1", {"bmk", "nk"}, "bmn"},
    {"f64[6]; f64[5]", "%r = outer %0, %1", {"m", "n"}, "mn"},
    {"f64[2, 3, 4]", "%r = einsum [%0] { equation = \"ijk->kij\" }", {"ijk"}, "kij"},
    {"f64[3, 3]", "%r = einsum [%0] { equation = \"ii->i\" }", {"ii"}, "i"},
    {"f64[3, 4]; f64[4, 5]; f64[5, 2]",
     "%r = einsum [%0, %1, %2] { equation = \"ij,jk,kl->li\" }",
     {"ij", "jk", "kl"},
     "li"},
    {"f64[6, 7]; f64[5, 6, 8]; f64[6, 8]",
     "%r = einsum [%0, %1, %2] { equation = \"bi,obj,bj->bo\" }",
     {"bi", "obj", "bj"},
     "bo"},
    {"f64[8, 4, 16, 8]; f64[8, 4, 12, 8]",
     "%r = einsum [%0, %1] { equation = \"bhqd,bhkd->bhqk\" }",
     {"bhqd", "bhkd"},
     "bhqk"},
    {"f64[8, 16, 4, 8]; f64[8, 12, 4, 8]",
     "%r = einsum [%0, %1] { equation = \"bqhd,bkhd->bhkq\" }",
     {"bqhd", "bkhd"},
     "bhkq"},
    {"f64[2, 3, 4]; f64[4, 3, 5]",
     "%r = tensordot %0, %1 { dims_self = [1, 2], dims_other = [1, 0] }",
     {"abc", "cbd"},
     "ad"},
    {"f64[2, 9, 8]; f64[2, 8, 7]",
     "%r = dot_general [%0, %1] { dimension_numbers = [[[2], [1]], [[0], [0]]] }",
     {"bmk", "bkn"},
     "bmn"},
    {"f64[2, 3, 5]; f64[7, 5, 4]; f64[2, 3, 4]",
     "%r = bilinear %0, %1, %2",
     {"abi", "oij", "abj"},
     "abo"},
    {"f64[2, 3]; f64[2, 3]", "%r = mul %0, %1", {"ab", "ab"}, "ab"},
    {"f64[4, 2, 3]; f64[3]", "%r = mul %0, %1", {"abc", "c"}, "abc"},
    {"f64[4, 1, 3]; f64[2, 1]", "%r = mul %0, %1", {"abc", "bc"}, "abc"},
    {"f64[4, 5, 3]", "%r = sum %0 { dim = [1] }", {"abc"}, "ac"},
    {"f64[4, 5, 3]", "%r = sum %0 { dim = [0, 2] }", {"abc"}, "b"},
    {"f64[4, 5, 3]", "%r = sum %0 ", {"abc"}, ""},
    {"f64[2, 6, 7, 5]; f64[2, 9, 5]", "%r = scores %0, %1", {"ahmk", "ank"}, "ahmn"},
    {"f64[6, 5]; f64[3, 5, 4]", "%r = expert_matmul %0, %1", {"mk", "ekn"}, "emn"},
    {"f64[3, 4, 5]; f64[3, 4, 5]", "%r = vecdot %0, %1 { dim = 1 }", {"abc", "abc"}, "ac"},
};

template <class T> double distance(const T &a, const T &b) { return a == b ? 0 : 1; }
template <> double distance(const double &a, const double &b) { return std::abs(a - b); }

template <class T> void compare(const Case &each, Domain domain) {
  INFO(each.text);
  Statement statement(each.inputs, each.text);
  std::mt19937 random(7);
  std::vector<Tensor> args = statement.draw(random, domain);
  std::vector<Tensor> results = statement.run(args, domain);
  INFO(statement.problem());
  REQUIRE(results.size() == 1);
  std::vector<T> want = brute_force<T>(each.operands, each.result, args, statement.result_dims(0));
  const std::vector<T> &got = results[0].of<T>();
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i)
    REQUIRE(distance(got[i], want[i]) <= 1e-12);
}

} // namespace

TEST_CASE("equations of products are sums over all indices") {
  for (const Case &each : kCases)
    compare<double>(each, Domain::F64);
}

TEST_CASE("equations of products are exact in the field") {
  for (const Case &each : kCases)
    compare<Residue>(each, Domain::Field);
}

TEST_CASE("matrix products by own loops are those of BLAS") {
  runtime::set_uses_blas(false);
  for (const Case &each : kCases)
    compare<double>(each, Domain::F64);
  runtime::set_uses_blas(true);
}

} // namespace spmd::test
