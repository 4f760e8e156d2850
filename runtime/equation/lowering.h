// What the terms of one application share while they are laid out: extents of factors, the tensors,
// and what the row is the derivative of.
#pragma once

#include "runtime/equation/term.h"

#include "llvm/Support/Error.h"

namespace spmd::runtime::lowered {

// A result: its terms are added up.
struct ResultPlan {
  std::vector<Term> terms;
  bool opaque = false; // the row says nothing of it: a residue per element, drawn from all operands
  bool is_truth = false; // what an unknown function gives is true or false
  uint64_t seed = 0;
};

// Calls `visit(ref, is it inside f)` for the operands of a term.
template <class Visit>
void each_ref(const rules::Equation &equation, const rules::Term &term, Visit visit) {
  for (unsigned a = 0; a < term.atom_count; ++a) {
    const rules::Atom &atom = equation.atoms[term.first_atom + a];
    for (unsigned r = 0; atom.form != rules::Atom::Form::Integer && r < atom.count; ++r)
      visit(equation.refs[atom.first + r], atom.form == rules::Atom::Form::Function);
  }
}

// The extents of a tensor, and the factors that they are made of.
struct Shaped {
  const Dims *dims;
  const rules::TensorFactors *factors; // null: not known
};

// The extents of factors, from tensors at hand.
class Extents {
public:
  Extents(const rules::FactorMap &map, llvm::ArrayRef<Shaped> args, llvm::ArrayRef<Shaped> results);

  int64_t operator[](uint8_t factor) const { return known_[factor]; } // negative: not known
  int64_t product(const rules::DimFactors &dim) const;
  uint8_t add(int64_t extent); // of a new factor
  // What does not fit; empty if all does.
  const std::string &problem() const { return problem_; }

private:
  void take_single(const Shaped &tensor, bool is_arg);
  void divide(const Shaped &tensor, bool several);

  std::vector<int64_t> known_;
  std::string problem_;
};

class Lowering {
public:
  Lowering(const KernelContext &context, llvm::ArrayRef<Dims> args, llvm::ArrayRef<Dims> results,
           bool modular);
  llvm::Error run(std::vector<ResultPlan> &out);

  const KernelContext &context;
  const rules::Equation &equation;
  const bool modular;

private:
  llvm::SmallVector<Shaped, 4> args_, results_;
  std::vector<rules::TensorFactors> made_;

public:
  Extents extents;
  std::vector<uint64_t> labels; // per factor: what it is called in hashes
  std::vector<bool> whole;      // per factor
  std::string problem;          // the first one met

  const Shaped &arg(unsigned i) const { return args_[i]; }
  const Shaped &result(unsigned k) const { return results_[k]; }
  unsigned arg_count() const { return static_cast<unsigned>(args_.size()); }
  bool present(const rules::Ref &ref) const {
    return ref.operand == rules::kGenerator || !context.binding.missing(ref.operand);
  }
  // The slot of an operand that is there.
  const rules::Slot &slot(const rules::Ref &ref) const { return *context.binding[ref.operand]; }
  bool fail(std::string text);

  // The row itself, or the one that it gives a gradient of.
  const rules::OpDef &forward() const {
    return context.row.derivative_of ? *context.row.derivative_of : context.row;
  }
  bool is_derived() const { return context.row.derivative_of != nullptr; }
  // Of a derived row: the result that this operand is the gradient of; none: it is an operand of
  // the row.
  std::optional<unsigned> gradient_of(const rules::Ref &ref) const;
  // The operand that is differentiated.
  bool is_differentiated(const rules::Ref &ref) const;
  // The factor that the entries of a condition point into, where it is known here.
  std::optional<uint8_t> target_of(const rules::Ref &ref) const;
  // Place among the members of a list.
  unsigned member() const;
  // Of hashes: the row and its attributes.
  uint64_t seed() const;

private:
  void name_unknown();
};

// Lays out a term for declared result `declared`, which is `row_result` of the row. `member`: of
// lists that are summed, each of which has a term of its own. False: it vanishes, or there was a
// problem.
bool build_term(Lowering &lowering, const rules::Term &row, unsigned declared, unsigned row_result,
                unsigned member, Term &out);

using Entries = llvm::SmallVector<std::pair<unsigned, int64_t>, 6>; // variable, stride

// A term whose arrays are known by the variables along which they lie.
struct Draft {
  Term term;
  llvm::SmallVector<Variable, 8> variables;
  Entries result;
  struct Part {
    Source source;
    Entries entries;
  };
  llvm::SmallVector<Part, 4> parts;
  llvm::SmallVector<Entries, 2> indices;   // per index of the term
  llvm::SmallVector<Entries, 4> arguments; // of one function after the other
};
// Strides, look-ups and the product. `seed`: of the linear map along whole factors.
void lay_out(Lowering &lowering, Draft &draft, uint64_t seed);

} // namespace spmd::runtime::lowered
