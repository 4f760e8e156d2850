// An equation as loops over its factors. Along a whole factor outside f the index on the side of
// the operands and that on the side of the result are two variables, joined by an arbitrary
// coefficient.
#include "tests/soundness/field_loop.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::soundness {

using rules::Atom;
using rules::Equation;
using rules::Ref;
using rules::RefRole;
using rules::TensorFactors;

uint64_t hash_of(std::string_view text) {
  uint64_t hash = text.size();
  for (char c : text)
    hash = mix(hash, static_cast<unsigned char>(c));
  return hash;
}

namespace {

// A position has no gradient. A mask may have one: whether it does is a matter of its element type.
bool has_gradient_role(const Ref &ref) {
  return ref.role != RefRole::ShapeOnly && ref.operand != rules::kGenerator &&
         ref.index == rules::kNoFactor;
}
bool is_value(const Ref &ref) {
  return ref.role == RefRole::Value && ref.operand != rules::kGenerator;
}

} // namespace

// Lays out one term.
class FieldOp::Layout {
public:
  Layout(const FieldOp &op, llvm::ArrayRef<FieldArg> args, const Extents &extents)
      : op_(op), equation_(op.row_->equation.equation), args_(args), extents_(extents) {}

  // None: all operands of the term are missing, so that it vanishes.
  std::optional<Loop> run(const rules::Term &term, unsigned index, const TensorFactors &result) {
    loop_ = Loop();
    variables_.clear();
    loop_.function_scale = op_.row_->function_scale;
    loop_.seed = mix(hash_of(op_.row_->name), index);
    loop_.factor = term.negative ? Residue(-1) : Residue(1);
    Dims dims = op_.dims_of(result, extents_);
    loop_.result = access(0, result, dims, true, true);
    bool any = false, mentions = false;
    for (unsigned a = 0; a < term.atom_count; ++a)
      atom(equation_.atoms[term.first_atom + a], a, any, mentions);
    if (!any && mentions)
      return std::nullopt;
    if (term.divisors)
      for (size_t f = 0; f < op_.map_.factors.size(); ++f)
        if (op_.map_.factors[f].divides)
          loop_.factor *= Residue(extents_[f]).inverse();
    pad();
    return loop_;
  }

private:
  // Strides are as many as there are variables in the end.
  void pad() {
    size_t count = loop_.extents.size();
    loop_.result.strides.resize(count);
    for (Loop::Read &read : loop_.reads)
      for (Access &member : read.members)
        member.strides.resize(count);
    for (Loop::Function &function : loop_.functions)
      for (Loop::Argument &argument : function.arguments)
        argument.base.strides.resize(count);
  }
  size_t variable(uint8_t factor, bool of_result) {
    bool whole = op_.map_.factors[factor].whole;
    for (const Variable &known : variables_)
      if (known.factor == factor && known.of_result == (whole && of_result))
        return known.index;
    variables_.push_back({factor, whole && of_result, loop_.extents.size()});
    loop_.extents.push_back(extents_[factor]);
    loop_.whole.push_back(whole);
    loop_.joins |= whole;
    return variables_.back().index;
  }
  // Calls `f(factor, stride)`; dimensions of one element that are stretched have none.
  template <class F> void for_strides(const TensorFactors &factors, const Dims &dims, F &&f) const {
    int64_t stride = 1;
    for (size_t d = factors.size(); d-- > 0;) {
      int64_t inner = stride;
      int64_t extent = 1;
      for (size_t i = factors[d].size(); i-- > 0;) {
        int64_t own = extents_[factors[d][i]];
        if (dims[d] != 1 || own == 1)
          f(factors[d][i], inner);
        inner *= own;
        extent *= own;
      }
      SPMD_CHECK(extent == dims[d] || dims[d] == 1, "extents were not decided");
      stride *= dims[d];
    }
  }
  Access access(unsigned arg, const TensorFactors &factors, const Dims &dims, bool of_result,
                bool with_whole) {
    Access made{arg, {}};
    for (const rules::DimFactors &dim : factors) // broadcast ones are loops too
      for (uint8_t factor : dim)
        if (with_whole || !op_.map_.factors[factor].whole)
          variable(factor, of_result);
    for_strides(factors, dims, [&](uint8_t factor, int64_t stride) {
      if (!with_whole && op_.map_.factors[factor].whole)
        return;
      size_t at = variable(factor, of_result);
      if (made.strides.size() <= at)
        made.strides.resize(at + 1);
      made.strides[at] += stride;
    });
    return made;
  }

  void atom(const Atom &atom, unsigned index, bool &any, bool &mentions) {
    if (atom.form == Atom::Form::Integer) {
      loop_.factor *= Residue(atom.first);
      return;
    }
    bool inside = atom.form == Atom::Form::Function;
    if (inside) {
      loop_.functions.emplace_back();
      loop_.functions.back().seed = mix(loop_.seed, index + 1);
    }
    for (unsigned r = 0; r < atom.count; ++r) {
      const Ref &ref = equation_.refs[atom.first + r];
      if (ref.role == RefRole::ShapeOnly)
        continue;
      mentions = true;
      const Place &place = op_.places_[ref.operand];
      any |= !place.missing();
      if (inside)
        argument(ref, place);
      else if (place.number)
        loop_.factor *= ref.role == RefRole::Condition
                            ? Residue::from_bits(mix(loop_.seed, place.number->value()))
                            : *place.number;
      else if (place.count)
        read(ref, place);
    }
  }
  void read(const Ref &ref, const Place &place) {
    Loop::Read read;
    read.summed = equation_.operands[ref.operand].list == rules::ListForm::Summed;
    read.differentiable = has_gradient_role(ref);
    read.weighs = ref.role == RefRole::Condition;
    read.seed = mix(loop_.seed, 3);
    for (unsigned k = 0; k < place.count; ++k) {
      unsigned arg = place.first + k;
      read.members.push_back(access(arg, *op_.map_.args[arg], args_[arg].array->dims, false, true));
    }
    if (ref.index != rules::kNoFactor && !ref.index_whole)
      point_into(ref, read);
    loop_.reads.push_back(std::move(read));
  }
  // The dimension that an index points into, where it may be cut: of the one value operand the
  // factor that neither the index nor the result has.
  void point_into(const Ref &index, Loop::Read &read) {
    for (unsigned r = 0; r < equation_.ref_count; ++r) {
      const Ref &ref = equation_.refs[r];
      if (!is_value(ref) || !op_.places_[ref.operand].count)
        continue;
      unsigned arg = op_.places_[ref.operand].first;
      const TensorFactors &factors = *op_.map_.args[arg];
      for (size_t d = 0; d < factors.size(); ++d) {
        if (factors[d].size() != 1 ||
            has(*op_.map_.args[op_.places_[index.operand].first], factors[d][0]) ||
            has(*op_.map_.results[0], factors[d][0]))
          continue;
        read.target = variable(factors[d][0], false);
        read.first = args_[arg].first ? (*args_[arg].first)[d] : 0;
        read.all = args_[arg].whole ? (*args_[arg].whole)[d] : args_[arg].array->dims[d];
        return;
      }
    }
  }
  static bool has(const TensorFactors &factors, uint8_t factor) {
    return llvm::any_of(factors, [&](const auto &dim) { return llvm::is_contained(dim, factor); });
  }
  void argument(const Ref &ref, const Place &place) {
    Loop::Function &function = loop_.functions.back();
    if (place.number)
      function.seed = mix(function.seed, place.number->value());
    for (unsigned k = 0; k < place.count; ++k) {
      unsigned arg = place.first + k;
      const TensorFactors &factors = *op_.map_.args[arg];
      const Dims &dims = args_[arg].array->dims;
      Loop::Argument made{access(arg, factors, dims, false, false), {0}, has_gradient_role(ref)};
      for_strides(factors, dims, [&](uint8_t factor, int64_t stride) {
        if (!op_.map_.factors[factor].whole)
          return;
        llvm::SmallVector<int64_t, 4> longer;
        for (int64_t i = 0; i < extents_[factor]; ++i)
          for (int64_t offset : made.offsets)
            longer.push_back(offset + i * stride);
        made.offsets = std::move(longer);
      });
      function.arguments.push_back(std::move(made));
    }
  }

  struct Variable {
    uint8_t factor;
    bool of_result;
    size_t index;
  };
  const FieldOp &op_;
  const Equation &equation_;
  llvm::ArrayRef<FieldArg> args_;
  const Extents &extents_;
  Loop loop_;
  llvm::SmallVector<Variable, 8> variables_;
};

std::vector<FieldOp::Loop> FieldOp::loops(size_t result, llvm::ArrayRef<FieldArg> args,
                                          const Extents &extents) const {
  const Equation &equation = row_->equation.equation;
  const rules::Sum &sum = sum_of(result);
  auto s = static_cast<unsigned>(&sum - equation.sums.data());
  std::vector<Loop> made;
  Layout layout(*this, args, extents);
  for (unsigned t = 0; t < sum.term_count; ++t)
    if (std::optional<Loop> loop =
            layout.run(equation.terms[sum.first_term + t], 16 * s + t, *map_.results[result]))
      made.push_back(std::move(*loop));
  return made;
}

} // namespace spmd::soundness
