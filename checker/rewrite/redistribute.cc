// Plans written out in all bodies at once: instructions move, and the names that refer to them
// follow.
#include "checker/rewrite/redistribute.h"

#include "checker/rewrite/inline.h"

#include "rules/ops/registry.h"
#include "rules/redistribute/call.h"
#include "rules/redistribute/plan.h"
#include "rules/redistribute/verify.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::checker {
namespace {

using ir::Inst;
using ir::InstId;
using ir::ValueId;

bool goes_to_type(const ir::Program &program, const Inst &inst, bool keep_stated) {
  if (keep_stated && program.find(inst.attrs, "grad"))
    return false;
  if (!program.find(inst.attrs, "type") || inst.result_count != 1)
    return false;
  return rules::resolve_op(program, inst.op).transition == rules::TransitionOp::Redistribute;
}

class Expander {
public:
  Expander(ir::Program &program, CheckResult result, bool keep_stated)
      : program_(program), result_(std::move(result)), rules_(program), planner_(program),
        copier_(program), keep_stated_(keep_stated) {}

  void run() {
    replace_each(program_, [&](const Inst &inst, InstId, std::vector<Inst> &out) {
      made_ = &out;
      if (!goes_to_type(program_, inst, keep_stated_) || !expand(inst))
        out.push_back(inst);
    });
  }

private:
  std::optional<rules::redistribute::Request> request_of(const Inst &inst, ValueId &operand) {
    llvm::ArrayRef<ir::Operand> operands = program_.operand_lists[inst.operands];
    if (operands.size() != 1 || !operands[0].is_value())
      return std::nullopt;
    operand = operands[0].as_value();
    ir::TypeId type = result_.types[operand.index];
    if (!type.valid())
      return std::nullopt;
    rules::TensorInfo arg{type, result_.shapes[operand.index], result_.sizes[operand.index]};
    rules::Slot slot;
    slot.form = rules::Slot::Form::Tensor;
    slot.count = 1;
    rules::ResultClaim claim;
    rules::Application app{program_, rules_.resolve(inst.op), inst.attrs, inst.context, slot, arg,
                           claim};
    return rules::redistribute::request_of(app);
  }

  bool expand(const Inst &inst) {
    ValueId at;
    std::optional<rules::redistribute::Request> request = request_of(inst, at);
    if (!request)
      return false;
    const rules::redistribute::Plan &plan = planner_.plan(*request);
    std::string wrong = rules::redistribute::verify(program_, rules_, *request, plan);
    SPMD_CHECK(wrong.empty(), wrong.c_str());
    if (plan.steps.empty()) {
      put(inst, "identity", program_.no_attrs(), at, inst.first_result);
      return true;
    }
    for (const rules::redistribute::Step &step : plan.steps) {
      bool last = &step == &plan.steps.back();
      ValueId result = last ? inst.first_result : between(inst);
      state_blocks(result, step.after, request->shape);
      put(inst, rules::name_of(step.op), rules::redistribute::attributes_of(program_, step), at,
          result);
      at = result;
    }
    return true;
  }
  ValueId between(const Inst &inst) {
    ir::Value value;
    value.name = copier_.fresh_name(
        ir::print(program_.values[inst.first_result].name, program_.strings).substr(1) + "_step");
    program_.values.add(value);
    return ValueId{static_cast<uint32_t>(program_.values.size() - 1)};
  }
  // Uneven blocks follow from the whole that a result states.
  void state_blocks(ValueId value, ir::TypeId type, ir::ShapeId whole) {
    rules::TensorInfo arg = rules::redistribute::arg_of(program_, type, whole);
    if (!arg.sizes.valid())
      return;
    program_.values[value].shape = arg.shape;
    program_.values[value].global_shape = whole;
  }
  void put(const Inst &inst, std::string_view op, ir::AttrsId attrs, ValueId operand,
           ValueId result) {
    Inst made = inst;
    std::string name = "spmd." + std::string(op);
    made.op = ir::OpNameId{program_.strings.add(name).index};
    made.attrs = attrs;
    made.operands = program_.operand_lists.add({ir::Operand::value(operand)});
    made.first_result = result;
    made_->push_back(made);
  }

  ir::Program &program_;
  CheckResult result_;
  rules::Rules rules_;
  rules::redistribute::Planner planner_;
  BodyCopier copier_; // for names
  const bool keep_stated_;
  std::vector<Inst> *made_ = nullptr; // where steps are put
};

} // namespace

bool expand_redistributes(ir::Program &program, const CheckOptions &options, bool keep_stated) {
  const auto in = [&](uint32_t first, uint32_t last) {
    for (uint32_t i = first; i < last; ++i)
      if (goes_to_type(program, program.insts[InstId{i}], keep_stated))
        return true;
    return false;
  };
  uint32_t first = program.main.first.index, last = program.main.last.index;
  // The steps depend on where they start: each call of a function needs its own.
  bool bodies = in(0, first) || in(last, static_cast<uint32_t>(program.insts.size()));
  if (bodies)
    inline_calls(program);
  bool any = bodies || in(first, last);
  if (any)
    Expander(program, check(program, options), keep_stated).run();
  return any;
}

} // namespace spmd::checker
