// Look-up by name. The tables are hashed on first use, not at start-up.
#include "rules/ops/table.h"

#include "rules/ops/families.h"
#include "rules/transitions/op.h"

#include "ir/boundary_ops.h"
#include "ir/support/check.h"

#include "llvm/ADT/DenseMap.h"

#include <tuple>

namespace spmd::rules {

namespace {

llvm::StringRef ref(std::string_view text) { return {text.data(), text.size()}; }

struct Tables {
  llvm::DenseMap<llvm::StringRef, const OpDef *> rows;
  llvm::DenseMap<llvm::StringRef, const Alias *> aliases;
  std::string problem; // a name that stands twice, or a spelling of nothing

  Tables(llvm::ArrayRef<llvm::ArrayRef<OpDef>> families, llvm::ArrayRef<Alias> spellings) {
    rows.reserve(512);
    for (llvm::ArrayRef<OpDef> family : families)
      for (const OpDef &row : family) {
        if (!rows.try_emplace(ref(row.name), &row).second)
          problem = "two rows are called `" + std::string(row.name) + "`";
        if (std::string_view word = no_part(row); !word.empty())
          problem = "a column of `" + std::string(row.name) + "` names `" + std::string(word) +
                    "`, which its equation does not have";
      }
    aliases.reserve(spellings.size());
    for (const Alias &alias : spellings) {
      if (!aliases.try_emplace(ref(alias.spelling), &alias).second)
        problem = "the spelling `" + std::string(alias.spelling) + "` stands twice";
      if (!means_something(alias.op))
        problem = "`" + std::string(alias.spelling) + "` is a spelling of `" +
                  std::string(alias.op) + "`, which is no op";
      if (std::string_view word = no_operand(alias); !word.empty())
        problem = "the order of `" + std::string(alias.spelling) + "` has the word `" +
                  std::string(word) + "`, which is no operand of `" + std::string(alias.op) + "`";
    }
  }

private:
  // What `values` and `chooses` name is an operand, or a factor.
  static std::string_view no_part(const OpDef &row) {
    const Equation &equation = row.equation.equation;
    auto is_operand = [&](std::string_view name) {
      return name.empty() || equation.find_operand(name) < equation.operand_count;
    };
    for (const ValuesOfOperand &known : row.values) {
      if (!is_operand(known.operand))
        return known.operand;
      if (!known.limit.empty() && equation.find_factor(known.limit) == kNoFactor)
        return known.limit;
    }
    return is_operand(row.chooses) ? std::string_view() : row.chooses;
  }
  // A word of the order that names nothing; `-` ignores a position on purpose. Where the operands
  // choose the row, a word may name an operand of another one.
  std::string_view no_operand(const Alias &alias) const {
    const OpDef *row = alias.choose ? nullptr : rows.lookup(ref(alias.op));
    if (row && row->choose)
      return {};
    for (llvm::StringRef rest = ref(alias.order), word; row && !rest.empty();) {
      std::tie(word, rest) = rest.split(' ');
      word.consume_back("...");
      const Equation &equation = row->equation.equation;
      if (!word.empty() && word != "-" && word != "~" &&
          equation.find_operand({word.data(), word.size()}) >= equation.operand_count)
        return {word.data(), word.size()};
    }
    return {};
  }
  bool means_something(std::string_view op) const {
    return rows.count(ref(op)) || find_transition_op(op) != TransitionOp::None ||
           ir::find_boundary(ref(op)) != ir::Boundary::None;
  }
};

const Tables &tables() {
  static const Tables made = [] {
    Tables all(op_families(), rules::aliases());
    SPMD_CHECK(all.problem.empty(), all.problem.c_str());
    return all;
  }();
  return made;
}

} // namespace

llvm::ArrayRef<llvm::ArrayRef<OpDef>> op_families() {
  static const llvm::ArrayRef<OpDef> families[] = {
      pointwise_ops(), contraction_ops(),   reduction_ops(), layout_ops(),   indexing_ops(),
      loss_ops(),      normalisation_ops(), attention_ops(), creation_ops(), optimizer_ops()};
  return families;
}

std::string table_problem(llvm::ArrayRef<llvm::ArrayRef<OpDef>> families,
                          llvm::ArrayRef<Alias> spellings) {
  return Tables(families, spellings).problem;
}

const OpDef *find_op(llvm::StringRef name) { return tables().rows.lookup(name); }

const Alias *find_alias(llvm::StringRef spelling) { return tables().aliases.lookup(spelling); }

llvm::SmallVector<llvm::StringRef, 8> spellings_of(llvm::StringRef op) {
  llvm::SmallVector<llvm::StringRef, 8> spellings;
  for (const Alias &alias : aliases())
    if (ref(alias.op) == op && ref(alias.spelling) != op)
      spellings.push_back(ref(alias.spelling));
  return spellings;
}

} // namespace spmd::rules
