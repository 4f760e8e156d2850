// Random einsums of sharded operands against the sum that their letters spell.
#include "tests/property/shard_check.h"

#include "tests/unit/catch.h"

#include <algorithm>

namespace spmd::property {
namespace {

constexpr unsigned kEquations = 150, kAssignments = 60;
constexpr int kExtent = 4;

class EinsumMeaning : public OpMeaning {
public:
  EinsumMeaning(std::vector<std::string> operands, std::string result)
      : operands_(std::move(operands)), result_(std::move(result)) {}

  std::optional<std::vector<Array>> run(const std::vector<Array> &operands) const override {
    std::string letters;
    std::vector<int> extents;
    for (size_t i = 0; i < operands.size(); ++i)
      for (size_t d = 0; d < operands_[i].size(); ++d) {
        size_t at = letters.find(operands_[i][d]);
        if (at == letters.npos) {
          letters += operands_[i][d];
          extents.push_back(operands[i].dims[d]);
        } else if (extents[at] != operands[i].dims[d]) {
          return std::nullopt;
        }
      }
    std::vector<int> at(letters.size(), 0);
    auto place = [&](const std::string &of) {
      size_t found = 0;
      for (char letter : of) {
        size_t l = letters.find(letter);
        found = found * static_cast<size_t>(extents[l]) + static_cast<size_t>(at[l]);
      }
      return found;
    };
    Array out;
    for (char letter : result_)
      out.dims.push_back(extents[letters.find(letter)]);
    out.data.assign(element_count(out.dims), 0);
    for (size_t points = element_count(extents); points-- > 0;) {
      int64_t product = 1;
      for (size_t i = 0; i < operands.size(); ++i)
        product *= operands[i].data[place(operands_[i])];
      out.data[place(result_)] += product;
      for (size_t l = letters.size(); l-- > 0;)
        if (++at[l] < extents[l])
          break;
        else
          at[l] = 0;
    }
    return std::vector<Array>{std::move(out)};
  }

private:
  std::vector<std::string> operands_;
  std::string result_;
};

void run_equations(ShardCheck &check, unsigned seed, int extent) {
  std::mt19937 random(seed);
  for (unsigned i = 0; i < kEquations; ++i) {
    std::vector<std::string> operands(1 + random() % 3);
    std::string letters, result;
    for (std::string &operand : operands)
      for (size_t d = 0, rank = 1 + random() % 3; d < rank; ++d) {
        // A letter that stands twice in one operand is a diagonal.
        char letter = static_cast<char>('i' + random() % 4);
        if (operand.find(letter) == operand.npos || random() % 8 == 0)
          operand += letter;
        if (letters.find(letter) == letters.npos)
          letters += letter;
      }
    for (char letter : letters)
      if (random() % 2)
        result.insert(result.begin() + static_cast<ptrdiff_t>(random() % (result.size() + 1)),
                      letter);
    EinsumMeaning meaning(operands, result);
    OpCase made;
    made.name = made.op = "einsum";
    std::string equation;
    for (size_t k = 0; k < operands.size(); ++k) {
      equation += (k ? "," : "") + operands[k];
      made.operands += (k ? ", %" : "[%") + std::to_string(k);
      made.tensors.push_back({std::vector<int>(operands[k].size(), extent)});
    }
    made.operands += "]";
    equation += "->" + result;
    made.attrs = [&](const std::vector<std::vector<int>> &) {
      return "equation = \"" + equation + "\"";
    };
    made.meaning = &meaning;
    check.run(made, kAssignments);
  }
}

} // namespace

TEST_CASE("einsums of sharded operands sum what their letters say") {
  ShardCheck pairs({2}, 1), triples({3}, 2), grid({2, 2}, 3), uneven({2}, 4, true), wide({2, 3}, 5);
  run_equations(pairs, 1, kExtent);
  run_equations(triples, 2, 3);
  run_equations(grid, 3, kExtent);
  run_equations(uneven, 4, 5);
  run_equations(wide, 5, 6);
  check_needless({&pairs, &triples, &grid, &uneven, &wide}, {});
}

} // namespace spmd::property
