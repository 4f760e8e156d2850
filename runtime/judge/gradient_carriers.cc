// One pass over the instructions. Whether an op only multiplies by a number is read off what the
// reference has for its operand and its result: every spelling of it is seen.
#include "runtime/judge/gradient_carriers.h"

#include "runtime/kernels/kernel.h"

#include "checker/operand_list.h"
#include "checker/program_queries.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace spmd::runtime {

using ir::InstId;
using ir::ValueId;

namespace {

constexpr size_t kReach = 1 << 10; // definitions that a search backwards looks at
constexpr double kSameNumber = 0x1p-40;

bool moves(const rules::ResolvedOp &op) {
  if (op.form == rules::OpForm::Transition)
    return true;
  if (op.form == rules::OpForm::Boundary)
    return rules::passes_data(op.boundary);
  const KernelDef *kernel = op.row ? find_kernel(op.row->name) : nullptr;
  return kernel && kernel->moves;
}

// The tensors that a result is made of: of a call on a list, the one in its place, then those that
// are not of the list.
llvm::SmallVector<ValueId, 4> sources(const ir::Program &program, const ir::Inst &inst,
                                      uint32_t result) {
  checker::OperandList operands;
  operands.read(program, inst.operands);
  llvm::SmallVector<ValueId, 4> found(operands.values.begin(), operands.values.end());
  if (inst.result_count < 2 || operands.slots.empty() || found.size() < inst.result_count ||
      operands.slots.front().form != rules::Slot::Form::List ||
      operands.slots.front().count != inst.result_count)
    return found;
  llvm::SmallVector<ValueId, 4> own{found[result]};
  own.append(found.begin() + inst.result_count, found.end());
  return own;
}

// b = c a for some number c.
bool is_multiple(const Meaning &a, const Meaning &b) {
  if (a.per_rank != b.per_rank || a.pieces.size() != b.pieces.size())
    return false;
  double factor = 0, largest = 0;
  auto each = [&](auto f) {
    for (size_t p = 0; p < a.pieces.size(); ++p) {
      if (a.pieces[p].dims != b.pieces[p].dims || a.pieces[p].is_complex() ||
          a.pieces[p].is_modular() || b.pieces[p].is_complex() || b.pieces[p].is_modular())
        return false;
      const std::vector<double> &from = a.pieces[p].of<double>(), &to = b.pieces[p].of<double>();
      for (size_t i = 0; i < from.size(); ++i)
        if (!f(from[i], to[i]))
          return false;
    }
    return true;
  };
  bool read = each([&](double from, double to) {
    if (std::abs(from) > largest)
      largest = std::abs(from), factor = to / from;
    return true;
  });
  double allowed = largest * std::abs(factor) * kSameNumber;
  return read && largest > 0 && std::isfinite(factor) &&
         each([&](double from, double to) { return std::abs(to - factor * from) <= allowed; });
}

class GradientCarriers {
public:
  GradientCarriers(Reference &reference, const ReferenceRun &run, bool pending)
      : reference_(reference), program_(reference.program()), run_(run), pending_(pending) {
    for (const ir::Param &param : program_.params)
      if (param.role != ir::Role::Input)
        outside_.insert(param.value.index);
  }

  std::vector<SteppedGradient> find() {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      InstId id{i};
      reads(id);
      const ir::Inst inst = program_.insts[id];
      for (uint32_t r = 0; r < inst.result_count; ++r)
        carry(inst, r);
    }
    return std::move(found_);
  }

private:
  // A gradient of a parameter up to a number; `scaled`: times what the program computes.
  struct CarriedGradient {
    ValueId param, exact;
    bool scaled = false;
  };

  ValueId root(ValueId value) const {
    while (program_.values[value].alias_of.valid())
      value = program_.values[value].alias_of;
    return value;
  }

  const CarriedGradient *carried(ValueId value) const {
    auto at = carried_.find(value.index);
    return at == carried_.end() ? nullptr : &at->second;
  }

  void carry(const ir::Inst &inst, uint32_t r) {
    ValueId result = inst.result(r);
    if (ValueId of = program_.values[result].grad_of; of.valid()) {
      if (ValueId param = parameter_behind(reference_, of); param.valid())
        carried_[result.index] = {param, result, false};
      return;
    }
    llvm::SmallVector<ValueId, 4> from = sources(program_, inst, r);
    const CarriedGradient *first = nullptr;
    ValueId only;
    unsigned others = 0, same = 0;
    for (ValueId value : from)
      if (const CarriedGradient *each = carried(value)) {
        if (first && first->param != each->param)
          return;
        first = first && first->scaled ? first : each;
        only = value;
        ++same;
      } else {
        ++others;
      }
    if (!first || outside_.count(root(result).index))
      return;
    CarriedGradient made = *first;
    if (same == 1 && !moves(reference_.resolve(inst.op))) {
      const Meaning *a = run_.find(only), *b = run_.find(result);
      if (!a || !b || !is_multiple(*a, *b))
        return;
      made.scaled |= others > 0;
    } else if (same > 1 && (others > 0 || !adds(inst))) {
      return;
    }
    if (!made.scaled)
      made.exact = result;
    carried_[result.index] = made;
  }

  // Accumulation: a sum of gradients of one parameter.
  bool adds(const ir::Inst &inst) {
    const rules::ResolvedOp &op = reference_.resolve(inst.op);
    return op.row && !op.row->equation.equation.has_function &&
           op.row->equation.equation.term_count > 1;
  }

  // What an instruction that writes to a parameter or its state takes.
  void reads(InstId id) {
    const ir::Inst &inst = program_.insts[id];
    checker::OperandList operands;
    operands.read(program_, inst.operands);
    bool writes = reference_.resolve(inst.op).boundary == rules::Boundary::Step;
    for (size_t i = 0; i < operands.values.size(); ++i)
      writes |= operands.written[i] && outside_.count(root(operands.values[i]).index);
    for (size_t i = 0; writes && i < operands.values.size(); ++i)
      if (const CarriedGradient *each = carried(operands.values[i]); each && !operands.written[i])
        take(id, *each);
  }
  void take(InstId id, const CarriedGradient &each) {
    bool any =
        pending_ && reference_.resolve(program_.insts[id].op).boundary == rules::Boundary::Step;
    bool first = seen_.insert(each.exact.index).second;
    if (!any && (!first || !is_synchronised(each)))
      return;
    found_.push_back({each.exact, each.param, id});
  }
  bool is_synchronised(const CarriedGradient &each) const {
    const Meaning *own = run_.find(each.exact), *param = run_.find(each.param);
    const ir::Type &type = program_.types[reference_.checked().type(each.exact)];
    bool pending = !(type.of(ir::Kind::Partial) - type.zero()).empty();
    if (!own || !param || pending || own->per_rank != param->per_rank ||
        own->pieces.size() != param->pieces.size())
      return false;
    for (size_t p = 0; p < own->pieces.size(); ++p)
      if (own->pieces[p].dims != param->pieces[p].dims)
        return false;
    return true;
  }

  Reference &reference_;
  ir::Program &program_;
  const ReferenceRun &run_;
  const bool pending_;
  llvm::DenseSet<uint32_t> outside_; // storage that parameters and their state have, by ValueId
  llvm::DenseMap<uint32_t, CarriedGradient> carried_;
  llvm::DenseSet<uint32_t> seen_;
  std::vector<SteppedGradient> found_;
};

} // namespace

ValueId parameter_behind(Reference &reference, ValueId value,
                         llvm::SmallVectorImpl<InstId> *through) {
  const ir::Program &program = reference.program();
  for (size_t step = 0; step < kReach; ++step) {
    InstId id = checker::defining_inst(program, value);
    if (!id.valid()) {
      const ir::Param *param = program.find_param(value);
      return param && param->role == ir::Role::Param ? value : ValueId();
    }
    const ir::Inst &inst = program.insts[id];
    llvm::SmallVector<ValueId, 4> from =
        sources(program, inst, value.index - inst.first_result.index);
    const rules::ResolvedOp &op = reference.resolve(inst.op);
    bool passes = moves(op) ||
                  (op.form == rules::OpForm::Equation && !op.row->equation.equation.has_function);
    if (from.size() != 1 || !passes)
      return {};
    if (through)
      through->push_back(id);
    value = from.front();
  }
  return {};
}

std::vector<SteppedGradient> stepped_gradients(Reference &reference, const ReferenceRun &run,
                                               bool pending) {
  return GradientCarriers(reference, run, pending).find();
}

} // namespace spmd::runtime
