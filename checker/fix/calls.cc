// From the words of a step to a row, and from a row to the text; changes of calls by the violation.
#include "checker/fix/calls.h"

#include "checker/fix/call_rows.h"
#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "ir/support/strings.h"
#include "ir/text/text.h"
#include "rules/ops/registry.h"
#include "rules/transitions/axes.h"
#include "rules/violations/commands/costs.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/meshes.h"
#include "rules/violations/shards.h"
#include "rules/violations/steps/returned.h"
#include "rules/violations/transitions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

using ir::AxisSet;
using ir::Kind;
using ir::WrittenKind;
using rules::TransitionOp;
using Form = ScriptCall::Form;

enum class Framework : uint8_t { None, Torch, Jax };
struct FrameworkRow {
  std::string_view begins; // the name of the framework in a trace
  Framework framework;
};
constexpr FrameworkRow kFrameworks[] = {{"torch", Framework::Torch},
                                        {"megatron-core", Framework::Torch},
                                        {"torchtitan", Framework::Torch},
                                        {"jax", Framework::Jax}};

Framework framework_of(const ir::Program &program) {
  if (!program.producer.framework.valid())
    return Framework::None;
  const llvm::StringRef name = program.strings[program.producer.framework];
  for (const FrameworkRow &row : kFrameworks)
    if (ir::starts_with(name, {row.begins.data(), row.begins.size()}))
      return row.framework;
  return Framework::None;
}

// A step as its attributes state it.
struct StatedStep {
  TransitionOp op;
  AxisSet axes;
  WrittenKind src, dst;
};

// What a script calls some axes of a mesh.
struct AxisWords {
  std::string axes, group, argument, names; // as in CallRow::text
};
AxisWords words_of(const ir::Program &program, ir::MeshId id, AxisSet axes) {
  const ir::Mesh &mesh = program.meshes[id];
  AxisWords words;
  int64_t ranks = 1;
  for (ir::AxisId axis : axes) {
    const std::string name = program.strings[mesh[axis].name].str();
    ranks *= rules::size_of(mesh, axis);
    words.axes += (words.axes.empty() ? "" : " and ") + name;
    words.names += fmt::format("{}\"{}\"", words.names.empty() ? "" : ", ", name);
    words.group += name + "_";
  }
  if (axes.size() > 1)
    words.names = "(" + words.names + ")";
  words.group += "group";
  if (axes.empty() || ranks == program.world.value_or(0))
    words.group = "dist.group.WORLD";
  else
    words.argument = ", group=" + words.group;
  return words;
}

// The backward and the optimizer are recorded as they ran: nothing derives them again.
bool has_gradient(const ir::Program &program, const Fix &fix) {
  return fix.dual_too || is_forward(program.insts[fix.inst]);
}

std::optional<Has> has_by(WrittenKind word) {
  if (word.form == WrittenKind::Form::Shard)
    return Has::S;
  if (word.form != WrittenKind::Form::Plain)
    return std::nullopt;
  if (word.kind == Kind::Partial)
    return word.combiner == ir::Combiner::Sum ? std::optional(Has::P) : std::nullopt;
  if (word.kind == Kind::Replicate || word.kind == Kind::Reduced)
    return Has::R;
  return word.kind == Kind::Invariant ? std::optional(Has::I) : std::nullopt;
}

ir::MeshId mesh_at(const ir::Program &program, const Fix &fix) {
  return program.contexts[program.insts[fix.inst].context].mesh;
}

// None where something is open.
std::optional<StatedStep> stated(const ir::Program &program, const Fix &fix, const FixStep &step) {
  const ir::AttrValue *axis = program.find(step.attrs, "axis"),
                      *src = program.find(step.attrs, "src"),
                      *dst = program.find(step.attrs, "dst");
  if (!axis || axis->form != ir::AttrForm::Axes || !src || src->form != ir::AttrForm::Kind ||
      !dst || dst->form != ir::AttrForm::Kind)
    return std::nullopt;
  AxisSet axes;
  for (const ir::AxisRef &ref : program.axis_refs[axis->as<ir::AxisRefsId>()].refs) {
    const std::optional<ir::AxisId> found = program.meshes[mesh_at(program, fix)].find(ref.axis);
    if (!found || ref.mesh.valid())
      return std::nullopt;
    axes |= *found;
  }
  return StatedStep{step.op, axes, src->as_kind(), dst->as_kind()};
}

// In JAX collectives are written where axes are local; on whole arrays there are none.
bool has_words(const ir::Program &program, const Fix &fix, AxisSet axes) {
  const Framework framework = framework_of(program);
  const AxisSet local = program.local_axes(program.contexts[program.insts[fix.inst].context]);
  return framework == Framework::Torch || (framework == Framework::Jax && (axes - local).empty());
}

const CallRow *row_of(const ir::Program &program, const Fix &fix, const StatedStep &call) {
  const std::optional<Has> before = has_by(call.src), after = has_by(call.dst);
  const bool blocks = before == Has::S || after == Has::S;
  if (!before || !after || !has_words(program, fix, call.axes) || (blocks && call.axes.size() > 1))
    return nullptr;
  const llvm::ArrayRef<CallRow> rows = framework_of(program) == Framework::Jax
                                           ? llvm::ArrayRef<CallRow>(call_rows::kJax)
                                           : llvm::ArrayRef<CallRow>(call_rows::kTorch);
  const auto *row = llvm::find_if(rows, [&](const CallRow &each) {
    return each.op == call.op && each.before == before && each.after == after &&
           each.differentiable.value_or(has_gradient(program, fix)) == has_gradient(program, fix);
  });
  return row == rows.end() ? nullptr : row;
}

bool is_name_or_call(llvm::StringRef text) {
  return llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
}
// As a factor.
std::string factor(std::string_view tensor) {
  return is_name_or_call({tensor.data(), tensor.size()}) ? std::string(tensor)
                                                         : fmt::format("({})", tensor);
}

// `block`: how many elements of a dimension that is cut a rank keeps; empty: not known.
std::string text_of(const CallRow &row, const AxisWords &words, const StatedStep &call,
                    std::string_view tensor, const std::string &block) {
  const bool times = row.text.substr(0, 5) == "{x} *";
  return fmt::format(fmt::runtime(row.text), fmt::arg("x", times ? factor(tensor) : tensor),
                     fmt::arg("group", words.group), fmt::arg("argument", words.argument),
                     fmt::arg("names", words.names), fmt::arg("axes", words.axes),
                     fmt::arg("dim", int(call.dst.dim)), fmt::arg("from", int(call.src.dim)),
                     fmt::arg("block", block));
}

// Of a parameter that one instruction of the forward reads all of the gradient comes from there.
bool is_read_once(const ir::Program &program, ir::ValueId value) {
  const ir::Param *param = program.find_param(value);
  if (!param || param->role != ir::Role::Param)
    return false;
  unsigned readers = 0;
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    if (is_forward(program.insts[ir::InstId{i}]))
      readers += llvm::is_contained(tensors_of(program, ir::InstId{i}), value);
  return readers == 1;
}

std::string block_of(const ir::Program &program, const FixStep &step, const StatedStep &call) {
  if (!step.after.shape.valid() || call.dst.dim < 0)
    return "";
  const ir::Shape &shape = program.shapes[step.after.shape];
  if (size_t(call.dst.dim) >= shape.dims.size() || !shape.dims[call.dst.dim].is_number())
    return "";
  return std::to_string(shape.dims[call.dst.dim].number());
}

// The same call on each operand that the fix is about.
std::optional<ScriptCall> call_of_steps(const ir::Program &program, const Fix &fix,
                                        std::string_view tensor) {
  const bool marked = !fix.remark.empty() && !fix.dual_too; // other sizes, too
  std::optional<ScriptCall> made;
  bool parameters = true; // whose gradients need a sum, and nothing else does
  AxisWords words;
  for (const FixStep &step : fix.steps) {
    const std::optional<StatedStep> call = stated(program, fix, step);
    const CallRow *row = call ? row_of(program, fix, *call) : nullptr;
    if (!row)
      return std::nullopt;
    words = words_of(program, mesh_at(program, fix), call->axes);
    const std::string block = block_of(program, step, *call);
    if (block.empty() && row->text.find("{block}") != std::string_view::npos)
      return std::nullopt;
    std::string text = text_of(*row, words, *call, tensor, block);
    if (made && made->text != text)
      return std::nullopt;
    if (!made)
      made = ScriptCall{marked ? Form::Described : row->form, std::move(text)};
    made->tensors.push_back(step.value);
    parameters &= call->op == TransitionOp::Convert && has_by(call->src) == Has::I &&
                  has_by(call->dst) == Has::R && has_gradient(program, fix) &&
                  is_read_once(program, step.value);
  }
  if (!made)
    return std::nullopt;
  if (parameters) {
    const std::string gradient(script_words(program).gradient);
    made->form = Form::AfterBackward;
    made->text = framework_of(program) == Framework::Jax
                     ? fmt::format("jax.lax.psum({}, {})", gradient, words.names)
                     : fmt::format("dist.all_reduce({}{})", gradient, words.argument);
  } else if (marked) {
    made->text += fix.remark;
  }
  return made;
}

// `x / dist.get_world_size(dp_group)`
std::optional<ScriptCall> call_of_scale(const ir::Program &program, const Fix &fix,
                                        std::string_view tensor) {
  const FixStep &step = fix.steps.front();
  const ir::AttrValue *factors = program.find(step.attrs, "by");
  if (fix.steps.size() != 1 || !factors || factors->form != ir::AttrForm::Scale)
    return std::nullopt;
  const ir::Scale &by = program.scales[factors->as<ir::ScaleId>()];
  const ir::MeshId mesh = mesh_at(program, fix);
  llvm::SmallVector<std::string, 2> over, under;
  for (const ir::ScaleFactor &each : by.factors) {
    const std::optional<ir::AxisId> axis = program.meshes[mesh].find(each.base);
    if (!axis || !has_words(program, fix, *axis))
      return std::nullopt;
    const AxisWords words = words_of(program, mesh, *axis);
    const std::string size = framework_of(program) == Framework::Jax
                                 ? fmt::format("jax.lax.axis_size({})", words.names)
                                 : fmt::format("dist.get_world_size({})", words.group);
    (each.exponent > 0 ? over : under).append(size_t(std::abs(each.exponent)), size);
  }
  if (by.numerator != 1)
    over.insert(over.begin(), std::to_string(by.numerator));
  if (by.denominator != 1)
    under.insert(under.begin(), std::to_string(by.denominator));
  std::string text = factor(tensor);
  for (const std::string &each : over)
    text += " * " + each;
  if (!under.empty())
    text += under.size() > 1 ? fmt::format(" / ({})", llvm::join(under, " * ")) : " / " + under[0];
  return ScriptCall{Form::Expression, std::move(text), {step.value}};
}

// What costs less than what is there.
std::optional<ScriptCall> call_of_saving(const ir::Program &program, const Finding &finding,
                                         const Fix &fix, std::string_view tensor) {
  const rules::Violation &violation = finding.violation;
  const FixStep &step = fix.steps.front();
  ScriptCall made{Form::OfCall, "", {step.value}};
  if (step.op != TransitionOp::None) {
    const std::optional<StatedStep> call = stated(program, fix, step);
    const CallRow *row = call ? row_of(program, fix, *call) : nullptr;
    if (!row)
      return std::nullopt;
    const AxisWords words = words_of(program, mesh_at(program, fix), call->axes);
    made.text = text_of(*row, words, *call, tensor, "") + " in the place of both calls";
  } else if (violation.is<rules::CancellingPair>()) {
    made.text = fmt::format("use {}, without both calls", tensor);
  } else if (violation.is<rules::RepeatedCollective>()) {
    made.text = fmt::format("use {} again, without the second call", tensor);
  } else if (violation.is<rules::Overlappable>() && framework_of(program) == Framework::Torch) {
    made.text = fmt::format("start the call with async_op=True as soon as {} is there, and wait() "
                            "for it in its old place",
                            tensor);
  } else {
    return std::nullopt; // XLA orders calls by itself
  }
  return made;
}

// Another argument of the call, or another call.
std::optional<ScriptCall> call_of_attribute(const ir::Program &program, const Finding &finding,
                                            const Fix &fix) {
  const rules::Violation &violation = finding.violation;
  const bool jax = framework_of(program) == Framework::Jax;
  if (const auto *wrong = violation.as<rules::WrongAxis>();
      wrong && has_words(program, fix, wrong->actual)) {
    const AxisWords words = words_of(program, mesh_at(program, fix), wrong->actual);
    return ScriptCall{Form::OfCall, jax ? fmt::format("axis_name={} in the call", words.names)
                                        : fmt::format("group={} in the call", words.group)};
  }
  if (const auto *wrong = violation.as<rules::WrongDimension>();
      wrong && has_words(program, fix, wrong->axes))
    return ScriptCall{Form::OfCall,
                      fmt::format("{}={} for the blocks", jax ? "axis" : "dim", wrong->found)};
  const TransitionOp op = rules::resolve_op(program, program.insts[fix.inst].op).transition;
  if (violation.is<rules::MissingVjp>() && !jax && op != TransitionOp::None)
    return ScriptCall{Form::OfCall, fmt::format("torch.distributed.nn.functional.{0} in the place "
                                                "of dist.{0}",
                                                rules::name_of(op))};
  return std::nullopt;
}

} // namespace

ScriptWords script_words(const ir::Program &program) {
  switch (framework_of(program)) {
  case Framework::Torch:
    return {"in PyTorch", "x", "p.grad"};
  case Framework::Jax:
    return {"in JAX", "x", "g"};
  case Framework::None:
    break;
  }
  return {};
}

std::optional<ScriptCall> script_call(const ir::Program &program, const Finding &finding,
                                      const Fix &fix, std::string_view tensor) {
  if (framework_of(program) == Framework::None)
    return std::nullopt;
  if (finding.info().is_cost)
    return call_of_saving(program, finding, fix, tensor);
  if (fix.form == Fix::Form::Attribute)
    return call_of_attribute(program, finding, fix);
  if (fix.form == Fix::Form::Drop)
    return ScriptCall{Form::OfCall, "leave the call out"};
  // Nobody would make another value for a call that should not be there, or for a word of a
  // program.
  const bool needless = finding.violation.is<rules::ReduceOfReplicated>() ||
                        finding.violation.is<rules::NeedlessPartial>();
  if (fix.form != Fix::Form::Transition || fix.changes_value || fix.steps.empty() || needless)
    return std::nullopt;
  return fix.steps.front().op == TransitionOp::None ? call_of_scale(program, fix, tensor)
                                                    : call_of_steps(program, fix, tensor);
}

static ir::MeshId mesh_of_value(const ir::Program &program, ir::ValueId value) {
  const ir::MeshId mesh = program.values[value].mesh;
  return mesh.valid() ? mesh : program.contexts[ir::ContextId{0}].mesh;
}

static std::string torch_hint(const ir::Program &program, const Finding &finding) {
  constexpr std::string_view kReduce = "dist.all_reduce({}, op=dist.ReduceOp.AVG{}) ";
  if (const auto *drift = finding.violation.as<rules::CopiesDrift>()) {
    const ir::Param *param = program.find_param(drift->value);
    const std::string group =
        words_of(program, mesh_of_value(program, drift->value), drift->axes).argument;
    if (param && param->role == ir::Role::Buffer)
      return "in PyTorch, " + fmt::format(kReduce, "b", group) +
             "where the buffer b has been written, if it is to be one on all ranks";
    return "in PyTorch, " + fmt::format(kReduce, "p.grad", group) +
           "between the backward and the step of the optimizer, if nothing sums it (SUM where the "
           "loss is divided by the ranks already), where p is the parameter";
  }
  auto broadcast = [&](ir::ValueId value, ir::AxisSet axes, std::string_view tensor,
                       std::string_view what) {
    return fmt::format("in PyTorch, dist.broadcast({}{}, group_src=0) before the first step, or "
                       "one seed on all ranks where the {} is made",
                       tensor, words_of(program, mesh_of_value(program, value), axes).argument,
                       what);
  };
  if (const auto *differ = finding.violation.as<rules::CopiesDiffer>())
    return broadcast(differ->value, differ->axes, "p.data", "parameter p");
  if (const auto *differ = finding.violation.as<rules::BuffersDiffer>())
    return broadcast(differ->value, differ->axes, "b", "buffer b");
  if (const auto *none = finding.violation.as<rules::NoTransition>();
      none && none->src.kind == ir::Kind::Partial && none->dst.form == ir::WrittenKind::Form::Shard)
    return "in PyTorch, dist.reduce_scatter_tensor(part, x) adds x up over the ranks and gives "
           "each "
           "its part; a slice of x is a part of this rank's addend alone";
  if (finding.violation.is<rules::UnreturnedGradient>())
    return "in PyTorch, dist.send(x.grad, stage) for each tensor that was received, and "
           "torch.autograd.backward([x, y], [x_grad, y_grad]) where it was sent";
  if (finding.violation.is<rules::TiedCopiesDrift>())
    return "in PyTorch, dist.all_reduce(p.grad, group=embedding_group) on the stages that have a "
           "copy, between the backward and the step of the optimizer";
  return "";
}

static std::string jax_hint(const ir::Program &program, const Finding &finding) {
  const auto *drift = finding.violation.as<rules::CopiesDrift>();
  if (!drift || drift->axes.empty())
    return "";
  return fmt::format("in JAX, jax.lax.pmean(g, {}) of the gradient g before the update, if nothing "
                     "sums it (psum where the loss is divided by the ranks already)",
                     words_of(program, mesh_of_value(program, drift->value), drift->axes).names);
}

std::string script_hint(const ir::Program &program, const Finding &finding) {
  switch (framework_of(program)) {
  case Framework::Torch:
    return torch_hint(program, finding);
  case Framework::Jax:
    return jax_hint(program, finding);
  case Framework::None:
    break;
  }
  return "";
}

} // namespace spmd::checker
