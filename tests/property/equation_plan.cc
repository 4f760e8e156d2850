// Loops of an equation. Along a whole factor outside f the index on the side of the operands and
// that on the side of the result are two variables, joined by an arbitrary coefficient; the factor
// that an index points into is one variable, and exact.
#include "tests/property/equation_plan.h"

#include <algorithm>
#include <map>

namespace spmd::property {

using rules::Dim;
using rules::Equation;
using rules::Ref;
using rules::RefRole;

namespace {

uint64_t mix(uint64_t hash, uint64_t more) {
  hash ^= more + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 33);
}

int64_t small(uint64_t hash, int64_t most) {
  return static_cast<int64_t>(hash % static_cast<uint64_t>(2 * most + 1)) - most;
}

int64_t remainder(int64_t value, int64_t extent) { return ((value % extent) + extent) % extent; }

TensorPlan written(const Equation &equation, unsigned first, unsigned count, unsigned rest) {
  TensorPlan tensor;
  for (unsigned d = first; d < first + count; ++d) {
    const Dim &dim = equation.dims[d];
    std::vector<uint8_t> factors;
    if (dim.form == Dim::Form::Rest) {
      for (unsigned i = 0; i < rest; ++i)
        tensor.dims.push_back({static_cast<uint8_t>(rules::kRestFactor + i)});
      continue;
    }
    if (dim.form == Dim::Form::Merged)
      factors.assign(equation.merged.begin() + dim.first,
                     equation.merged.begin() + dim.first + dim.count);
    else if (dim.form != Dim::Form::One)
      factors = {dim.first};
    tensor.dims.push_back(std::move(factors));
  }
  return tensor;
}

} // namespace

size_t ShapePlan::size(const TensorPlan &tensor) const {
  size_t size = 1;
  for (const std::vector<uint8_t> &dim : tensor.dims)
    for (uint8_t factor : dim)
      size *= static_cast<size_t>(extents[factor]);
  return size;
}

ShapePlan plan_as_written(const Equation &equation, uint32_t absent, unsigned rest) {
  ShapePlan plan;
  plan.extents.assign(rules::kRestFactor + rest, 2);
  plan.operands.resize(equation.operand_count);
  for (unsigned f = 0; f < rules::kRestFactor; ++f) {
    plan.whole.push_back(equation.whole >> f & 1);
    plan.row_factors.push_back({static_cast<uint8_t>(f)});
  }
  plan.row_factors.emplace_back();
  for (unsigned i = 0; i < rest; ++i) {
    plan.whole.push_back(equation.whole >> rules::kRestFactor & 1);
    plan.row_factors.back().push_back(static_cast<uint8_t>(rules::kRestFactor + i));
  }
  for (unsigned r = 0; r < equation.ref_count; ++r) {
    const Ref &ref = equation.refs[r];
    if (ref.operand == rules::kGenerator || !plan.operands[ref.operand].empty() ||
        absent >> ref.operand & 1)
      continue;
    bool single = equation.operands[ref.operand].list == rules::ListForm::Single;
    plan.operands[ref.operand].assign(single ? 1 : 2,
                                      written(equation, ref.first_dim, ref.dim_count, rest));
  }
  for (unsigned s = 0; s < equation.sum_count; ++s) {
    const rules::Result &result = equation.results[equation.sums[s].first_result];
    plan.results.push_back(written(equation, result.first_dim, result.dim_count, rest));
  }
  return plan;
}

ShapePlan plan_of_map(const rules::FactorMap &map,
                      const std::vector<std::vector<uint16_t>> &members) {
  ShapePlan plan;
  auto tensor = [](const rules::TensorFactors &factors) {
    TensorPlan made;
    for (const rules::DimFactors &dim : factors)
      made.dims.emplace_back(dim.begin(), dim.end());
    return made;
  };
  for (const rules::FactorInfo &factor : map.factors) {
    bool known = factor.extent && factor.extent->is_number();
    plan.extents.push_back(known ? static_cast<int>(factor.extent->number()) : 2);
    plan.whole.push_back(factor.whole);
  }
  for (const std::vector<uint16_t> &operand : members) {
    plan.operands.emplace_back();
    for (uint16_t arg : operand)
      plan.operands.back().push_back(map.args[arg] ? tensor(*map.args[arg]) : TensorPlan());
  }
  for (const std::optional<rules::TensorFactors> &result : map.results)
    plan.results.push_back(result ? tensor(*result) : TensorPlan());
  return plan;
}

class SumPlan::Builder {
public:
  Builder(const Equation &equation, const ShapePlan &shapes, const TensorPlan &result)
      : equation_(equation), shapes_(shapes), result_(result) {}

  // False: the term vanishes, since none of its operands is there.
  bool build(const rules::Term &row, uint64_t seed, TermPlan &out) {
    targets_.assign(shapes_.extents.size(), false);
    visit(row, [&](const Ref &ref, bool inside) {
      if (!inside && ref.index != rules::kNoFactor)
        for (uint8_t factor : factors_of_row(ref.index))
          targets_[factor] = true;
    });
    add_variables(result_, true, true);
    bool any = false, mentions = false;
    visit(row, [&](const Ref &ref, bool inside) {
      if (ref.operand == rules::kGenerator)
        return void(any = true);
      if (ref.role == RefRole::ShapeOnly)
        return;
      mentions = true;
      for (const TensorPlan &member : shapes_.operands[ref.operand]) {
        any = true;
        add_variables(member, false, !inside);
      }
      if (!inside && ref.index != rules::kNoFactor && present(ref))
        for (uint8_t factor : factors_of_row(ref.index))
          variable(factor, false);
      if (present(ref))
        out.operands.push_back(ref.operand);
    });
    if (!any && mentions)
      return false;
    out.factor = row.negative ? -1 : 1;
    lay_out(row, seed, out);
    return true;
  }

private:
  struct Variable {
    int extent = 1, value = 0;
    bool whole = false;
  };

  template <class Visit> void visit(const rules::Term &row, Visit visit) const {
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const rules::Atom &atom = equation_.atoms[row.first_atom + a];
      for (unsigned r = 0; atom.form != rules::Atom::Form::Integer && r < atom.count; ++r)
        visit(equation_.refs[atom.first + r], atom.form == rules::Atom::Form::Function);
    }
  }
  bool present(const Ref &ref) const {
    return ref.operand == rules::kGenerator || !shapes_.operands[ref.operand].empty();
  }
  std::vector<uint8_t> factors_of_row(uint8_t factor) const {
    return factor < shapes_.row_factors.size() ? shapes_.row_factors[factor]
                                               : std::vector<uint8_t>();
  }

  // A variable of the loops: along a whole factor that no index points into, one per side.
  size_t variable(uint8_t factor, bool of_result) {
    bool split = shapes_.whole[factor] && !targets_[factor];
    auto [at, made] = places_.try_emplace({factor, split && of_result}, variables_.size());
    if (made) {
      variables_.push_back({shapes_.extents[factor], 0, shapes_.whole[factor]});
      joins_ |= split;
    }
    return at->second;
  }
  // Inside f whole factors are no loops: f takes all of them.
  void add_variables(const TensorPlan &tensor, bool of_result, bool with_whole) {
    for (const std::vector<uint8_t> &dim : tensor.dims)
      for (uint8_t factor : dim)
        if (with_whole || !shapes_.whole[factor])
          variable(factor, of_result);
  }

  bool advance() {
    for (Variable &variable : variables_)
      if (++variable.value < variable.extent)
        return true;
      else
        variable.value = 0;
    return false;
  }
  uint32_t place(const TensorPlan &tensor, bool of_result) {
    uint32_t at = 0;
    for (const std::vector<uint8_t> &dim : tensor.dims)
      for (uint8_t factor : dim)
        at = at * static_cast<uint32_t>(shapes_.extents[factor]) +
             static_cast<uint32_t>(variables_[variable(factor, of_result)].value);
    return at;
  }
  // All positions of a tensor inside f: its whole factors run through, the others stand.
  void positions(const TensorPlan &tensor, std::vector<uint32_t> &out) {
    std::vector<uint32_t> found = {0};
    for (const std::vector<uint8_t> &dim : tensor.dims)
      for (uint8_t factor : dim) {
        auto extent = static_cast<uint32_t>(shapes_.extents[factor]);
        std::vector<uint32_t> longer;
        for (uint32_t at : found)
          for (uint32_t i = 0; i < extent; ++i)
            if (shapes_.whole[factor] ||
                i == static_cast<uint32_t>(variables_[variable(factor, false)].value))
              longer.push_back(at * extent + i);
        found = std::move(longer);
      }
    out.insert(out.end(), found.begin(), found.end());
  }

  void lay_out(const rules::Term &row, uint64_t seed, TermPlan &out) {
    std::vector<const Ref *> reads;
    std::vector<std::vector<const Ref *>> functions; // one f after the other
    for (unsigned a = 0; a < row.atom_count; ++a) {
      const rules::Atom &atom = equation_.atoms[row.first_atom + a];
      if (atom.form == rules::Atom::Form::Integer) {
        out.factor *= atom.first;
        continue;
      }
      bool inside = atom.form == rules::Atom::Form::Function;
      if (inside)
        functions.emplace_back();
      for (unsigned r = 0; r < atom.count; ++r)
        if (const Ref &ref = equation_.refs[atom.first + r];
            present(ref) && ref.role != RefRole::ShapeOnly)
          (inside ? functions.back() : reads).push_back(&ref);
    }
    for (const Ref *ref : reads)
      out.reads.push_back(read_of(*ref));
    for (size_t f = 0; f < functions.size(); ++f) {
      out.functions.push_back({{}, mix(seed, f)});
      for (const Ref *ref : functions[f])
        add_arguments(*ref, out.functions.back().arguments);
    }
    if (std::any_of(variables_.begin(), variables_.end(),
                    [](const Variable &variable) { return variable.extent == 0; }))
      return; // an empty block
    do
      add_point(reads, seed, out);
    while (advance());
  }
  Read read_of(const Ref &ref) const {
    Read read;
    read.is_state = ref.operand == rules::kGenerator;
    read.operand = ref.operand;
    if (read.is_state)
      return read;
    read.summed = equation_.operands[ref.operand].list == rules::ListForm::Summed;
    bool points = ref.index != rules::kNoFactor && !factors_of_row(ref.index).empty();
    read.one_hot = points;
    if (points) {
      uint8_t target = factors_of_row(ref.index)[0];
      bool counts_all = !ref.index_whole && !shapes_.all.empty();
      read.one_hot_extent = counts_all ? shapes_.all[target] : shapes_.extents[target];
      read.one_hot_first = counts_all ? shapes_.first[target] : 0;
    }
    read.weighs = !points && ref.role == RefRole::Condition;
    return read;
  }
  void add_arguments(const Ref &ref, std::vector<Argument> &out) const {
    bool is_state = ref.operand == rules::kGenerator;
    size_t count = is_state ? 1 : shapes_.operands[ref.operand].size();
    for (unsigned k = 0; k < count; ++k)
      out.push_back({ref.operand, k, is_state, {}, 1});
  }
  void add_point(const std::vector<const Ref *> &reads, uint64_t seed, TermPlan &out) {
    out.result.push_back(place(result_, true));
    uint64_t whole = seed;
    for (const Variable &variable : variables_)
      whole = variable.whole ? mix(whole, static_cast<uint64_t>(variable.value)) : whole;
    out.positions.push_back(whole);
    if (joins_)
      out.coefficients.push_back(1 + static_cast<int64_t>(mix(whole, 1) % 97)); // never 0
    for (size_t i = 0; i < reads.size(); ++i) {
      const Ref &ref = *reads[i];
      Read &read = out.reads[i];
      // Members of a list may differ along a joined dimension; the map says where each is read.
      for (size_t k = 0; k < (read.is_state ? 0 : shapes_.operands[ref.operand].size()); ++k)
        read.at.push_back(place(shapes_.operands[ref.operand][k], false));
      if (read.one_hot)
        read.target.push_back(static_cast<uint32_t>(
            read.one_hot_first + variables_[variable(factors_of_row(ref.index)[0], false)].value));
    }
    for (Function &function : out.functions)
      for (Argument &argument : function.arguments)
        if (!argument.is_state) {
          size_t before = argument.at.size();
          positions(shapes_.operands[argument.operand][argument.member], argument.at);
          argument.width = argument.at.size() - before;
        }
  }

  const Equation &equation_;
  const ShapePlan &shapes_;
  const TensorPlan &result_;
  std::map<std::pair<uint8_t, bool>, size_t> places_;
  std::vector<Variable> variables_;
  std::vector<bool> targets_; // per factor: an index of the term points into it
  bool joins_ = false;        // a linear map along whole factors
};

SumPlan::SumPlan(const Equation &equation, const rules::Sum &sum, const ShapePlan &shapes) {
  size_t at = static_cast<size_t>(&sum - equation.sums.data());
  const TensorPlan &result = shapes.results[std::min(at, shapes.results.size() - 1)];
  result_size_ = shapes.size(result);
  for (unsigned t = 0; t < sum.term_count; ++t) {
    TermPlan term;
    Builder builder(equation, shapes, result);
    if (builder.build(equation.terms[sum.first_term + t], t + 1, term))
      terms_.push_back(std::move(term));
  }
}

void SumPlan::add_term(size_t index, const RankData &data, Data &result) const {
  const TermPlan &term = terms_[index];
  for (size_t p = 0; p < term.result.size(); ++p) {
    int64_t product = term.factor * (term.coefficients.empty() ? 1 : term.coefficients[p]);
    for (const Read &read : term.reads) {
      if (read.is_state) {
        product *= small(mix(mix(term.result[p], 7), static_cast<uint64_t>(data.state)), 9);
        continue;
      }
      const std::vector<Data> &members = data.operands[read.operand];
      int64_t all = read.summed ? 0 : 1;
      for (size_t k = 0; k < members.size(); ++k) {
        int64_t value = members[k][read.at[p * members.size() + k]];
        if (read.one_hot)
          value = remainder(value, read.one_hot_extent) == read.target[p];
        else if (read.weighs)
          value = small(mix(index + 3, static_cast<uint64_t>(value)), 5);
        all = read.summed ? all + value : all * value;
      }
      product *= all;
    }
    for (const Function &function : term.functions) {
      uint64_t hash = mix(function.seed, term.positions[p]);
      for (const Argument &argument : function.arguments) {
        if (argument.is_state) {
          hash = mix(mix(hash, term.result[p]), static_cast<uint64_t>(data.state));
          continue;
        }
        const Data &member = data.operands[argument.operand][argument.member];
        for (size_t i = 0; i < argument.width; ++i)
          hash = mix(hash, static_cast<uint64_t>(member[argument.at[p * argument.width + i]]));
      }
      product *= small(hash, 99);
    }
    result[term.result[p]] += product;
  }
}

} // namespace spmd::property
