// The forward is judged once more, with the axes in question no longer local: rows then say whether
// the loss averages over the cut dimension or adds up along it.
#include "runtime/judge/losses.h"

#include "checker/operand_list.h"

#include "rules/ops/registry.h"

#include "ir/dialect/print_type.h"
#include "ir/input/input.h"
#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::runtime {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ValueId;

namespace {

ValueId first_tensor(const ir::Program &program, const ir::Inst &inst) {
  checker::OperandList operands;
  operands.read(program, inst.operands);
  return operands.values.empty() ? ValueId() : operands.values.front();
}

// A gradient that no data entered.
bool is_seed(const ir::Program &program, const ir::Inst &inst) {
  if (inst.result_count != 1 || !program.values[inst.first_result].grad_of.valid())
    return false;
  rules::ResolvedOp op = rules::resolve_op(program, inst.op);
  return op.row && op.row->constant != rules::OpDef::Constant::No;
}

class ForwardRerun {
public:
  // What the loss is on these axes where they are not local.
  ForwardRerun(const ir::Program &program, ValueId loss, AxisSet axes) : axes_(axes) {
    ir::ReadResult read = ir::read_program(ir::print_text(program));
    if (!read.errors.empty())
      return;
    program_ = std::move(read.program);
    loss_ = find(ir::print_value(program, loss));
    if (loss_.valid())
      judge();
  }

  // How often the size of the axis is in what the loss is multiplied by; none: not known.
  std::optional<int32_t> exponent(AxisId axis) const {
    if (!type_ || !(type_->of(Kind::Partial) & axis) || type_->unknown.contains(axis))
      return std::nullopt;
    return ir::exponent_of(program_, type_->scale, type_->mesh(), axis);
  }

private:
  ValueId find(const std::string &name) const {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst &inst = program_.insts[InstId{i}];
      for (uint32_t r = 0; r < inst.result_count; ++r)
        if (ir::print_value(program_, inst.result(r)) == name)
          return inst.result(r);
    }
    return {};
  }
  InstId maker(ValueId value) const {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      const ir::Inst &inst = program_.insts[InstId{i}];
      if (value.index >= inst.first_result.index &&
          value.index < inst.first_result.index + inst.result_count)
        return InstId{i};
    }
    return {};
  }

  // Statements that rename the loss say what it is for the recorder; the rows that made it are
  // asked.
  ValueId behind_statements(ir::ScaleId &by) {
    ValueId value = loss_;
    for (;;) {
      InstId id = maker(value);
      if (!id.valid())
        return value;
      const ir::Inst &inst = program_.insts[id];
      rules::ResolvedOp op = rules::resolve_op(program_, inst.op);
      bool states = op.transition == rules::TransitionOp::Reinterpret ||
                    op.boundary == rules::Boundary::Scale || rules::is_same_data(op.boundary);
      ValueId before = first_tensor(program_, inst);
      if (!states || !before.valid())
        return value;
      const ir::AttrValue *factor = program_.find(inst.attrs, "by");
      if (op.boundary == rules::Boundary::Scale && factor && factor->form == ir::AttrForm::Scale)
        by = ir::product(program_, by,
                         ir::canonical_scale(program_, factor->as<ir::ScaleId>(),
                                             program_.contexts[inst.context].mesh));
      value = before;
    }
  }

  void globalise() {
    program_.mode = ir::Mode::Global;
    program_.outputs.clear();
    program_.expectations.clear();
    program_.ignores.clear();
    program_.main.last = InstId{maker(loss_).index + 1};
    program_.axis_scales.of.clear();
    for (uint16_t m = 0; m < program_.meshes.size(); ++m)
      for (ir::Axis &axis : program_.meshes[ir::MeshId{m}].axes)
        axis.policy = ir::Policy::Unstated;
    std::vector<bool> param(program_.values.size());
    for (const ir::Param &each : program_.params)
      param[each.value.index] = true;
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
      ir::Inst &inst = program_.insts[InstId{i}];
      ir::Context where = program_.contexts[inst.context];
      where.local = program_.meshes[where.mesh].typed_axes() - axes_;
      where.check = true;
      inst.context = program_.contexts.add(where);
      for (uint32_t r = 0; r < inst.result_count; ++r)
        program_.values[inst.result(r)].declared = {};
    }
  }

  void judge() {
    globalise();
    ir::ScaleId by = program_.one();
    ValueId value = behind_statements(by);
    checker::CheckOptions options;
    options.permissive = options.infer_partial = true;
    checker::CheckResult result = checker::check(program_, options);
    if (!result.types[value.index].valid())
      return;
    type_ = program_.types[result.types[value.index]];
    type_->scale = ir::product(program_, type_->scale, by);
  }

  AxisSet axes_;
  ir::Program program_;
  ValueId loss_;
  std::optional<ir::Type> type_;
};

// Local axes on which ranks have losses of their own.
AxisSet own_losses(const checker::CheckedProgram &checked, InstId at, ValueId loss) {
  const ir::Program &program = checked.program();
  const ir::Type &type = program.types[checked.type(loss)];
  const ir::Mesh &mesh = program.meshes[type.mesh()];
  ir::Context where = program.contexts[program.insts[at].context];
  AxisSet local =
      where.mesh == type.mesh() ? program.local_axes(where) : program.local_axes(type.mesh());
  AxisSet equal = type.same_on_all_ranks(), own;
  for (AxisId axis : (local & mesh.typed_axes()) - equal)
    if (mesh[axis].size() > 1)
      own |= axis;
  return own;
}

void combine(const checker::CheckedProgram &checked, InstId at, LossChoice choice, LossRoot &root) {
  root.mesh = checked.program().types[checked.type(root.loss)].mesh();
  AxisSet own = own_losses(checked, at, root.loss);
  if (choice != LossChoice::Auto || own.empty()) {
    (choice == LossChoice::Sum ? root.sum : root.mean) = own;
    return;
  }
  ForwardRerun forward(checked.program(), root.loss, own);
  for (AxisId axis : own) {
    std::optional<int32_t> exponent = forward.exponent(axis);
    bool known = exponent && (*exponent == 0 || *exponent == 1);
    if (!known)
      root.assumed |= axis;
    (known && *exponent == 0 ? root.sum : root.mean) |= axis;
  }
}

} // namespace

std::vector<LossRoot> recorded_losses(const checker::CheckedProgram &checked, LossChoice choice) {
  const ir::Program &program = checked.program();
  std::vector<LossRoot> roots;
  bool marked = false;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    for (uint32_t r = 0; r < inst.result_count; ++r)
      marked |= program.values[inst.result(r)].grad_of.valid();
    if (!is_seed(program, inst))
      continue;
    roots.push_back({program.values[inst.first_result].grad_of, inst.first_result, {}, {}, {}, {}});
    combine(checked, InstId{i}, choice, roots.back());
  }
  if (!roots.empty() || !marked)
    return roots;
  // A backward inside of functions: it starts with ones.
  for (const ir::Output &output : program.outputs)
    if (output.role == ir::OutputRole::Loss) {
      roots.push_back({output.value, {}, {}, {}, {}, {}});
      combine(checked, InstId{program.main.last.index - 1}, choice, roots.back());
    }
  return roots;
}

std::string print(const ir::Program &program, const LossRoot &root) {
  std::string text;
  auto add = [&](AxisSet axes, std::string_view words) {
    if (axes)
      text += fmt::format("{} the {} over {} of what the ranks have{}", text.empty() ? "" : ",",
                          words, ir::print_axes(program, root.mesh, axes),
                          (root.assumed & axes) ? ", as assumed (--losses)" : "");
  };
  add(root.mean, "mean");
  add(root.sum, "sum");
  return text.empty()
             ? text
             : fmt::format("{} of one device is{}", ir::print_value(program, root.loss), text);
}

} // namespace spmd::runtime
