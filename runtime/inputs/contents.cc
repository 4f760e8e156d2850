// Goes through the main body from its end, and through each body that is called, with what is asked
// of results; asks operands in turn. Ops that only move elements ask the same of their operand.
#include "runtime/inputs/contents.h"

#include "runtime/tensor/tensor.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "rules/factors/shape_rule.h"
#include "rules/violations/operands.h"

#include "ir/claims.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::runtime {

using ir::ValueId;
using rules::Application;
using rules::Atom;
using rules::Equation;
using rules::FactorMap;
using rules::Ref;
using rules::RefRole;
using rules::Slot;
using rules::Term;

namespace {

Content joined(const Content &a, const Content &b) {
  Content stronger = a.form >= b.form ? a : b;
  if (a.form == b.form && a.limit && b.limit)
    stronger.limit = std::min(a.limit, b.limit);
  stronger.factor = std::min(a.factor, b.factor);
  return stronger;
}

// One row of one instruction, ready to be asked about its operands.
struct RowAt {
  const Application &app;
  const rules::OpDef &row;
  const Equation &equation;
  const rules::Binding &binding;
  const FactorMap &map;
  llvm::ArrayRef<Dims> wholes; // per tensor; empty: not known
};

// The extent of a dimension of all ranks together; 0 if it is not known.
int64_t whole_extent(const RowAt &at, size_t arg, size_t dim) {
  return dim < at.wholes[arg].size() ? at.wholes[arg][dim] : 0;
}

// The number of positions that an index into a factor of the row has; 0 if it is not known.
int64_t size_of(const RowAt &at, uint8_t factor) {
  if (factor >= at.map.of_row.size())
    return 0;
  const auto &made = at.map.of_row[factor];
  for (size_t arg = 0; arg < at.map.args.size(); ++arg) {
    if (!at.map.args[arg])
      continue;
    const rules::TensorFactors &dims = *at.map.args[arg];
    for (size_t dim = 0; dim < dims.size(); ++dim)
      if (made.size() == 1 && dims[dim].size() == 1 && dims[dim][0] == made[0])
        return whole_extent(at, arg, dim);
  }
  int64_t positions = made.empty() ? 0 : 1; // no operand has it: a count of classes
  for (uint8_t each : made) {
    std::optional<ir::Extent> extent = at.map.factors[each].extent;
    positions *= extent && extent->is_number() ? extent->number() : 0;
  }
  return positions;
}

// The positions of an operand's dimension that one member of a list of indices picks from, gaps
// counted.
int64_t size_of_member(const RowAt &at, const Slot &list, unsigned member) {
  uint64_t there = list.form == Slot::Form::List ? list.literal.bits : 1;
  unsigned position = 0;
  for (; position < 64; ++position)
    if (there >> position & 1 && member-- == 0)
      break;
  const Slot *indexed = at.binding[0];
  return indexed && indexed->count ? whole_extent(at, indexed->first, position) : 0;
}

// Elements that are multiplied and summed away where this tensor enters a product.
double summed_products(const RowAt &at, const Term &term, size_t arg) {
  if (term.atom_count < 2 || at.map.results.empty() || !at.map.results[0] || !at.map.args[arg])
    return 1;
  llvm::SmallBitVector kept(static_cast<unsigned>(at.map.factors.size()));
  for (const rules::DimFactors &dim : *at.map.results[0])
    for (uint8_t factor : dim)
      kept.set(factor);
  double products = 1;
  const rules::TensorFactors &dims = *at.map.args[arg];
  for (size_t dim = 0; dim < dims.size(); ++dim)
    if (!dims[dim].empty() && llvm::none_of(dims[dim], [&](uint8_t f) { return kept.test(f); }))
      products *= std::max<double>(1, double(whole_extent(at, arg, dim)));
  return products;
}

class Demands {
public:
  explicit Demands(checker::CheckedProgram &checked)
      : checked_(checked), program_(checked.mutable_program()), rules_(program_) {}

  // What is asked of values of one execution of a body.
  using Asked = llvm::DenseMap<uint32_t, Content>;

  void body(const ir::Body &body, uint32_t typing, Asked &asked) {
    for (uint32_t i = body.last.index; i-- > body.first.index;)
      instruction(ir::InstId{i}, typing, asked);
  }

private:
  void ask(Asked &asked, ValueId value, const Content &content) {
    auto [place, added] = asked.try_emplace(value.index, content);
    if (!added)
      place->second = joined(place->second, content);
  }

  void instruction(ir::InstId id, uint32_t typing, Asked &asked) {
    ir::Inst inst = program_.insts[id];
    const rules::ResolvedOp &op = rules_.resolve(inst.op);
    checker::OperandList operands;
    operands.read(program_, inst.operands);
    if (op.form == rules::OpForm::Call)
      return call(id, inst, op, typing, operands, asked);
    if (op.form == rules::OpForm::Equation)
      return equation(inst, op, typing, operands, asked);
    if (op.form == rules::OpForm::Transition || rules::passes_data(op.boundary))
      for (size_t i = 0; i < operands.values.size(); ++i)
        pass(asked, inst, typing, std::min<uint32_t>(static_cast<uint32_t>(i), inst.result_count),
             operands.values[i]);
  }

  // What is asked of a result is asked of what it was moved from. An index that differs between
  // ranks where the operand does not was shifted there: the ranks together reach that much farther.
  void pass(Asked &asked, const ir::Inst &inst, uint32_t typing, uint32_t result, ValueId operand) {
    if (result >= inst.result_count)
      return;
    auto found = asked.find(inst.result(result).index);
    if (found == asked.end())
      return;
    Content content = found->second;
    if (content.form == ContentForm::Index)
      content.limit *= more_ranks(checked_.known(inst.result(result), typing).type,
                                  checked_.known(operand, typing).type);
    ask(asked, operand, content);
  }
  int64_t more_ranks(ir::TypeId result, ir::TypeId operand) const {
    if (!result.valid() || !operand.valid())
      return 1;
    const ir::Type &a = program_.types[result], &b = program_.types[operand];
    if (a.mesh() != b.mesh())
      return 1;
    int64_t ranks = 1;
    for (ir::AxisId axis : (a.of(ir::Kind::Varying) - a.sharded()) - b.of(ir::Kind::Varying))
      ranks *= program_.meshes[a.mesh()][axis].size();
    return ranks;
  }

  Dims whole_of(const rules::TensorInfo &arg) const {
    Dims dims;
    if (!arg.shape.valid())
      return dims;
    const ir::Type &type = program_.types[arg.type];
    const ir::Shape &shape = program_.shapes[arg.shape];
    for (unsigned d = 0; d < shape.dims.size(); ++d) {
      const ir::UnevenDim *uneven =
          arg.sizes.valid() ? program_.shard_sizes[arg.sizes].find(d) : nullptr;
      ir::Extent extent = uneven ? uneven->global : shape.dims[d];
      int64_t number = extent.is_number() ? extent.number() : 0;
      if (!uneven)
        for (ir::AxisId axis : ir::shards_of(type, d))
          number *= program_.meshes[type.mesh()][axis].size();
      dims.push_back(number);
    }
    return dims;
  }

  void equation(const ir::Inst &inst, const rules::ResolvedOp &op, uint32_t typing,
                const checker::OperandList &operands, Asked &asked) {
    llvm::SmallVector<rules::TensorInfo, 6> args;
    llvm::SmallVector<Dims, 6> wholes;
    for (ValueId value : operands.values) {
      args.push_back(checked_.known(value, typing));
      wholes.push_back(whole_of(args.back()));
    }
    llvm::SmallVector<rules::ResultClaim, 2> claims;
    for (uint32_t i = 0; i < inst.result_count; ++i)
      claims.push_back({checked_.known(inst.result(i), typing).shape, {}, {}});
    Application app{program_, op, inst.attrs, inst.context, operands.slots, args, claims};
    for (const rules::RowUse &use : rules::row_uses(app)) {
      Application one = app.bound_to(use);
      const Equation &equation = use.row->equation.equation;
      rules::OperandMismatch problem;
      std::optional<rules::Binding> binding = rules::bind_operands(one, equation, problem);
      if (!binding)
        continue;
      rules::Outcome ignored;
      FactorMap map = rules::map_factors(one, equation, *binding, ignored);
      map.args.resize(args.size());
      row({one, *use.row, equation, *binding, map, wholes}, inst, typing, operands, use.results,
          asked);
    }
  }

  void row(const RowAt &at, const ir::Inst &inst, uint32_t typing,
           const checker::OperandList &operands, llvm::ArrayRef<unsigned> results, Asked &asked) {
    for (uint8_t s = 0; s < at.equation.sum_count; ++s) {
      const rules::Sum &sum = at.equation.sums[s];
      for (uint8_t t = 0; t < sum.term_count; ++t) {
        const Term &term = at.equation.terms[sum.first_term + t];
        for (uint8_t a = 0; a < term.atom_count; ++a) {
          const Atom &atom = at.equation.atoms[term.first_atom + a];
          if (atom.form == Atom::Form::Integer)
            continue;
          for (uint8_t r = 0; r < atom.count; ++r)
            reference(at, at.equation.refs[atom.first + r], term, operands, asked);
        }
      }
      if (sum.first_result < results.size())
        moved(at, sum, inst, typing, results[sum.first_result], operands, asked);
    }
  }

  // One mention of an operand.
  void reference(const RowAt &at, const Ref &ref, const Term &term,
                 const checker::OperandList &operands, Asked &asked) {
    if (ref.operand == rules::kGenerator || ref.role == RefRole::ShapeOnly ||
        at.binding.missing(ref.operand) || at.binding.is_number(ref.operand))
      return;
    const Slot &slot = *at.binding[ref.operand];
    for (unsigned member = 0; member < slot.count; ++member) {
      size_t arg = slot.first + member;
      Content content = wanted(at, ref, slot, member);
      if (ref.role == RefRole::Value && content.form == ContentForm::Free)
        content.factor = 1 / std::sqrt(summed_products(at, term, arg));
      if (content.form != ContentForm::Free || content.factor != 1)
        ask(asked, operands.values[arg], content);
    }
  }

  Content wanted(const RowAt &at, const Ref &ref, const Slot &slot, unsigned member) const {
    std::string_view name = at.equation.operands[ref.operand].name;
    for (const rules::ValuesOfOperand &known : at.row.values)
      if (known.operand == name)
        return {known.form, limit_of(at, known)};
    if (ref.index != rules::kNoFactor)
      return {ContentForm::Index, size_of(at, ref.index)};
    if (ref.role != RefRole::Condition)
      return {};
    bool index_list =
        at.row.factors && at.equation.operands[ref.operand].list != rules::ListForm::Single;
    if (index_list && !is_truth(at.app, slot.first + member))
      return {ContentForm::Index, size_of_member(at, slot, member)};
    return {ContentForm::Truth};
  }
  static int64_t limit_of(const RowAt &at, const rules::ValuesOfOperand &known) {
    if (!known.limit.empty())
      return size_of(at, at.equation.find_factor(known.limit));
    return known.form == ContentForm::Index ? elements_of(at, 0) : 0;
  }
  static bool is_truth(const Application &app, size_t arg) {
    const ir::Shape *shape = app.shape(app.args[arg]);
    return shape && shape->dtype == ir::DType::Bool;
  }
  static int64_t elements_of(const RowAt &at, unsigned operand) {
    return at.binding[operand] ? count(at.wholes[at.binding[operand]->first]) : 0;
  }

  // A result whose elements are those of operands, or zeros: chosen, moved, or added to what is not
  // an index itself.
  void moved(const RowAt &at, const rules::Sum &sum, const ir::Inst &inst, uint32_t typing,
             unsigned result, const checker::OperandList &operands, Asked &asked) {
    bool first = true;
    for (uint8_t t = 0; t < sum.term_count; ++t) {
      const Term &term = at.equation.terms[sum.first_term + t];
      const Ref *moved = nullptr;
      bool chosen = false;
      unsigned values = 0;
      for (uint8_t a = 0; a < term.atom_count; ++a) {
        const Atom &atom = at.equation.atoms[term.first_atom + a];
        const Ref *ref = atom.form == Atom::Form::Ref ? &at.equation.refs[atom.first] : nullptr;
        chosen |= ref && ref->role == RefRole::Condition;
        if (ref && ref->role == RefRole::Condition)
          continue;
        ++values;
        moved = ref;
      }
      if (values != 1 || !moved || moved->operand == rules::kGenerator || term.divisors ||
          at.binding.missing(moved->operand) || at.binding.is_number(moved->operand))
        continue;
      const Slot &slot = *at.binding[moved->operand];
      for (unsigned member = 0; member < slot.count; ++member) {
        ValueId value = operands.values[slot.first + member];
        if (first || chosen)
          pass(asked, inst, typing, result, value);
        else if (auto found = asked.find(inst.result(result).index);
                 found != asked.end() && found->second.form == ContentForm::Index)
          ask(asked, value,
              {ContentForm::Index, 1}); // what is added to an index leaves it in range
      }
      first = false;
    }
  }

  void call(ir::InstId id, const ir::Inst &inst, const rules::ResolvedOp &op, uint32_t typing,
            const checker::OperandList &operands, Asked &asked) {
    llvm::ArrayRef<uint32_t> bodies = checked_.bodies(id, typing);
    constexpr llvm::StringRef kCondition = "cond";
    constexpr llvm::StringRef kRegions[] = {kCondition, "then", "else", "body"};
    size_t next = 0;
    for (llvm::StringRef region : kRegions) {
      const ir::AttrValue *attr = program_.find(inst.attrs, region);
      if (!attr || attr->form != ir::AttrForm::Function || next >= bodies.size())
        continue;
      const ir::Function &function = program_.functions[attr->as<ir::FunctionId>()];
      if (function.opaque)
        continue;
      Asked inside;
      llvm::ArrayRef<ir::Operand> results = program_.operand_lists[function.results];
      for (uint32_t i = 0; region != kCondition && i < inst.result_count && i < results.size(); ++i)
        if (auto found = asked.find(inst.result(i).index);
            found != asked.end() && results[i].is_value())
          ask(inside, results[i].as_value(), found->second);
      body(function.body, bodies[next++], inside);
      size_t skipped = op.boundary == rules::Boundary::Cond ? 1 : 0; // the predicate
      for (size_t i = 0; i < function.params.size() && i + skipped < operands.values.size(); ++i)
        if (auto found = inside.find(function.params[i].value.index); found != inside.end())
          ask(asked, operands.values[i + skipped], found->second);
    }
  }

  checker::CheckedProgram &checked_;
  ir::Program &program_;
  rules::Rules rules_;
};

} // namespace

std::vector<Content> contents_of(checker::CheckedProgram &checked) {
  Demands demands(checked);
  Demands::Asked asked;
  const ir::Program &program = checked.program();
  demands.body(program.main, checker::CheckedProgram::kMain, asked);
  std::vector<Content> contents;
  for (const ir::Param &param : program.params) {
    Content content = asked.lookup(param.value.index);
    if (param.role != ir::Role::Param && param.role != ir::Role::Const)
      content.factor = 1; // activations stay of order 1
    contents.push_back(content);
  }
  return contents;
}

} // namespace spmd::runtime
