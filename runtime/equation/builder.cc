// Which arrays a term multiplies, and the variables along which each of them lies.
#include "runtime/equation/lowering.h"
#include "runtime/tensor/special.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime::lowered {

using rules::Atom;
using rules::DimFactors;
using rules::kGenerator;
using rules::ListForm;
using rules::Ref;
using rules::RefRole;
using rules::Slot;

namespace {

class TermBuilder {
public:
  TermBuilder(Lowering &lowering, const rules::Term &row, unsigned declared, unsigned row_result,
              unsigned member)
      : all_(lowering), equation_(lowering.equation), row_(row), declared_(declared),
        row_result_(row_result), member_(member) {}

  bool build(Term &out) {
    if (vanishes())
      return false;
    find_targets();
    find_gradient();
    draft_.result = entries(all_.result(declared_), !all_.is_derived());
    for (unsigned a = 0; a < row_.atom_count; ++a)
      if (!add_atom(equation_.atoms[row_.first_atom + a]))
        return false;
    draft_.term.integer *= row_.negative ? -1 : 1;
    if (row_.divisors)
      for (size_t f = 0; f < all_.context.map.factors.size(); ++f)
        if (all_.context.map.factors[f].divides)
          draft_.term.divisor *= all_.extents[static_cast<uint8_t>(f)];
    lay_out(all_, draft_, row_seed());
    if (!all_.problem.empty())
      return false;
    out = std::move(draft_.term);
    return true;
  }

private:
  // None of the operands that a term mentions is there, one of them is the number 0, or no gradient
  // flows.
  bool vanishes() const {
    bool any = false, mentions = false, zero = false;
    each_ref(equation_, row_, [&](const Ref &ref, bool inside) {
      if (ref.role == RefRole::ShapeOnly)
        return;
      mentions = true;
      any |= all_.present(ref);
      zero |= all_.gradient_of(ref) && !all_.present(ref);
      if (!inside && ref.operand != kGenerator && all_.context.binding.is_number(ref.operand))
        zero |= all_.context.number(ref.operand) == 0.0;
    });
    return zero || (mentions && !any);
  }

  void find_targets() {
    each_ref(equation_, row_, [&](const Ref &ref, bool inside) {
      if (!inside && all_.present(ref))
        if (std::optional<uint8_t> target = all_.target_of(ref))
          targets_.push_back(*target);
    });
  }
  // Of a derived row each term has one gradient: that tells to which result it belongs.
  void find_gradient() {
    each_ref(equation_, row_, [&](const Ref &ref, bool) {
      std::optional<unsigned> of = all_.gradient_of(ref);
      if (!of)
        return;
      bool list = equation_.operands[ref.operand].list != ListForm::Single;
      row_result_ = *of + (list ? member_ : 0);
      gradient_ = static_cast<uint32_t>(all_.slot(ref).first + (list ? member_ : 0));
    });
  }
  uint64_t row_seed() const { return mix(all_.seed(), row_result_); }

  unsigned variable(uint8_t factor, bool of_result) {
    bool joined = all_.modular && all_.whole[factor] && !llvm::is_contained(targets_, factor);
    llvm::SmallVector<Variable, 8> &variables = draft_.variables;
    for (unsigned v = 0; v < variables.size(); ++v)
      if (variables[v].factor == factor && (!joined || variables[v].of_result == of_result))
        return v;
    variables.push_back({factor, joined && of_result, joined, all_.extents[factor]});
    return static_cast<unsigned>(variables.size() - 1);
  }

  bool is_known(const Shaped &tensor) {
    return tensor.factors ||
           all_.fail("the dimensions of a tensor do not follow from its attributes");
  }
  // The strides of a tensor along the variables of its factors. A dimension of one element is the
  // same along all of them.
  Entries entries(const Shaped &tensor, bool of_result) {
    Entries made;
    bool is_made = &tensor == &all_.result(declared_);
    int64_t stride = 1;
    for (size_t d = is_known(tensor) ? tensor.dims->size() : 0; d-- > 0;) {
      const DimFactors &dim = (*tensor.factors)[d];
      int64_t extent = (*tensor.dims)[d], product = all_.extents.product(dim);
      if (extent == product) {
        for (size_t i = dim.size(); i-- > 0;) {
          made.push_back({variable(dim[i], of_result), stride});
          stride *= all_.extents[dim[i]];
        }
      } else if (extent != 1 || is_made) {
        all_.fail(fmt::format("dimension {} has extent {} instead of {}", d, extent, product));
      }
    }
    return made;
  }

  bool add_atom(const Atom &atom) {
    if (atom.form == Atom::Form::Integer) {
      draft_.term.integer *= atom.first;
      return true;
    }
    if (atom.form == Atom::Form::Function)
      return add_function(atom);
    const Ref &ref = equation_.refs[atom.first];
    if (ref.role == RefRole::ShapeOnly || !all_.present(ref))
      return true;
    if (ref.operand == kGenerator)
      return add_draws();
    const Slot &slot = all_.slot(ref);
    if (slot.form == Slot::Form::Literal)
      return add_number(ref.operand);
    bool summed = equation_.operands[ref.operand].list == ListForm::Summed;
    for (unsigned k = 0; k < slot.count; ++k)
      if (!summed || k == member_)
        add_operand(ref, static_cast<uint32_t>(slot.first + k));
    return true;
  }
  bool add_number(unsigned operand) {
    std::optional<double> number = all_.context.number(operand);
    if (!number)
      return all_.fail("a word stands where a number is needed");
    draft_.term.number *= *number;
    draft_.term.residue *= residue_of(*number);
    return true;
  }
  void add_operand(const Ref &ref, uint32_t arg) {
    std::optional<uint8_t> target = all_.target_of(ref);
    if (target && llvm::count(targets_, *target) == 1)
      return add_index(ref, arg, *target);
    Draft::Part part;
    part.source.arg = arg;
    if (ref.role == RefRole::Condition && !all_.modular) {
      all_.fail("it has no kernel");
      return;
    }
    if (ref.role == RefRole::Condition) {
      part.source.form = Source::Form::Weight;
      part.source.seed = mix(row_seed(), hash_of(equation_.operands[ref.operand].name));
      part.source.keeps = keeps();
    }
    part.entries = entries(all_.arg(arg), all_.gradient_of(ref).has_value());
    draft_.parts.push_back(std::move(part));
  }
  // What a condition means where the row is one of choosing: by the operand that is chosen.
  Source::Keeps keeps() const {
    std::string_view chosen;
    each_ref(equation_, row_, [&](const Ref &ref, bool) {
      if (ref.role == RefRole::Value && ref.operand != kGenerator && !all_.gradient_of(ref))
        chosen = equation_.operands[ref.operand].name;
    });
    if (all_.is_derived())
      chosen = all_.forward().equation.equation.operands[all_.context.row.derivative_at].name;
    if (all_.forward().chooses.empty())
      return Source::Keeps::Hash;
    return chosen == all_.forward().chooses ? Source::Keeps::True : Source::Keeps::False;
  }

  void add_index(const Ref &ref, uint32_t arg, uint8_t target) {
    Index index;
    index.arg = arg;
    index.whole = ref.index_whole;
    index.extent = all_.extents[target];
    if (index.extent < 0) {
      all_.fail("the extent of what an index points into is not known");
      return;
    }
    index.target = variable(target, false);
    find_block(target, index);
    draft_.indices.push_back(entries(all_.arg(arg), false));
    draft_.term.indices.push_back(std::move(index));
  }
  // A tensor that has the target tells of which block it is.
  void find_block(uint8_t target, Index &index) const {
    auto find = [&](const Shaped &tensor, unsigned place, bool in_result) {
      for (unsigned d = 0; !index.held && tensor.factors && d < tensor.factors->size(); ++d)
        if ((*tensor.factors)[d].size() == 1 && (*tensor.factors)[d][0] == target &&
            (*tensor.dims)[d] == all_.extents[target]) {
          index.held = true;
          index.in_result = in_result;
          index.tensor = place;
          index.dim = d;
        }
    };
    find(all_.result(declared_), declared_, true);
    for (unsigned i = 0; i < all_.arg_count(); ++i)
      find(all_.arg(i), i, false);
  }

  // Random numbers are drawn per element of the forward result.
  bool add_draws() {
    Draft::Part part;
    part.source.form = Source::Form::Draws;
    part.entries = gradient_ ? entries(all_.arg(*gradient_), true) : draft_.result;
    draft_.parts.push_back(std::move(part));
    draft_.term.draws_by_arg = gradient_.has_value();
    draft_.term.draws_at = gradient_.value_or(0);
    return true;
  }

  bool add_function(const Atom &atom) {
    Draft::Part part;
    part.source.form = Source::Form::Function;
    part.source.part = static_cast<unsigned>(draft_.term.functions.size());
    Function function;
    function.seed = row_seed();
    for (unsigned r = 0; r < atom.count; ++r) {
      const Ref &ref = equation_.refs[atom.first + r];
      if (ref.role == RefRole::ShapeOnly || !all_.present(ref))
        continue;
      std::string_view name =
          ref.operand == kGenerator ? "~" : equation_.operands[ref.operand].name;
      function.seed = mix(function.seed, hash_of(name));
      // The derivative by one of its arguments is another function.
      if (all_.is_differentiated(ref))
        function.seed = mix(function.seed, ~uint64_t(0));
      add_arguments(ref, function, part.entries);
    }
    draft_.term.functions.push_back(std::move(function));
    draft_.parts.push_back(std::move(part));
    return true;
  }
  void add_arguments(const Ref &ref, Function &function, Entries &loops) {
    if (ref.operand == kGenerator) {
      draft_.term.draws_by_arg = gradient_.has_value();
      draft_.term.draws_at = gradient_.value_or(0);
      const Shaped &like = gradient_ ? all_.arg(*gradient_) : all_.result(declared_);
      return add_argument({true, 0, {}, {}, {}, 0}, like, function, loops);
    }
    const Slot &slot = all_.slot(ref);
    if (slot.form == Slot::Form::Literal) {
      double number = all_.context.number(ref.operand).value_or(0);
      function.seed = mix(function.seed, residue_of(number).value());
    }
    for (unsigned k = 0; k < slot.count; ++k) {
      auto arg = static_cast<uint32_t>(slot.first + k);
      add_argument({false, arg, {}, {}, {}, 0}, all_.arg(arg), function, loops);
    }
  }
  // Whole factors are folded, the others are variables of f.
  void add_argument(FunctionArgument argument, const Shaped &tensor, Function &function,
                    Entries &loops) {
    Entries own;
    int64_t stride = 1;
    for (size_t d = is_known(tensor) ? tensor.dims->size() : 0; d-- > 0;) {
      const DimFactors &dim = (*tensor.factors)[d];
      if ((*tensor.dims)[d] != all_.extents.product(dim))
        continue; // one element, the same everywhere
      for (size_t i = dim.size(); i-- > 0;) {
        int64_t extent = all_.extents[dim[i]];
        if (all_.whole[dim[i]])
          argument.folded.insert(argument.folded.begin(), {extent, stride});
        else
          own.push_back({variable(dim[i], false), stride});
        stride *= extent;
      }
    }
    for (const auto &entry : own)
      if (llvm::none_of(loops, [&](const auto &loop) { return loop.first == entry.first; }))
        loops.push_back({entry.first, 1});
    draft_.arguments.push_back(std::move(own));
    function.arguments.push_back(std::move(argument));
  }

  Lowering &all_;
  const rules::Equation &equation_;
  const rules::Term &row_;
  unsigned declared_, row_result_, member_;
  Draft draft_;
  llvm::SmallVector<uint8_t, 2> targets_;
  std::optional<uint32_t> gradient_; // the tensor that stands for it
};

} // namespace

bool build_term(Lowering &lowering, const rules::Term &row, unsigned declared, unsigned row_result,
                unsigned member, Term &out) {
  return TermBuilder(lowering, row, declared, row_result, member).build(out);
}

} // namespace spmd::runtime::lowered
