// Walks definitions back from an operand to where its kind arose. A step that only passes the kind
// on is counted, not shown.
#include "checker/report/provenance.h"

#include "checker/body_values.h"
#include "checker/check.h"
#include "checker/program_queries.h"
#include "checker/report/message.h"
#include "checker/report/verdicts/blame.h"
#include "checker/walk/gradients/joint.h"

#include "ir/claims.h"
#include "ir/dialect/print_type.h"
#include "ir/support/arrays.h"
#include "ir/support/format.h"
#include "ir/text/text.h"
#include "rules/boundary/name.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"
#include "rules/violations/claims.h"
#include "rules/violations/control.h"
#include "rules/violations/gradients.h"
#include "rules/violations/local.h"
#include "rules/violations/shards.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ValueId;

Note note_at_declaration(const ir::Program &program, ValueId value) {
  const ir::Param *param = program.find_param(value);
  if (std::optional<ir::FunctionId> function; !param) {
    function = function_of_param(program, value);
    if (!function)
      return {Note::Form::Since, {}, false, {}};
    return {Note::Form::Since, {Place::Form::Function, function->index}, true, {}};
  }
  auto index = static_cast<uint32_t>(param - program.params.data());
  return {Note::Form::Since, {Place::Form::Param, index}, true, {}};
}

namespace {

// Where the kind of one value on one axis comes from.
class Origin {
public:
  // What the type says on the axis: a kind, R or I undecided, or the shard of a dimension.
  Origin(const ir::Program &program, const CheckResult &result, AxisId axis, const ir::Type &type)
      : program_(program), result_(result), axis_(axis),
        kind_(type.kind(axis).value_or(Kind::Replicate)), either_(type.either().contains(axis)),
        sharded_(type.dim(axis).has_value()) {}

  Note find(ValueId value) {
    unsigned passed = 0;
    for (;;) {
      InstId inst = defining_inst(program_, value);
      ValueId source = inst.valid() ? passes(inst) : passed_in(value);
      const bool crosses = !inst.valid() || !source.valid();
      if (inst.valid() && !source.valid())
        source = returned(inst, value);
      if (!source.valid()) {
        source_ = value;
        return inst.valid() ? made(inst, value, passed) : declared(value, passed);
      }
      value = source;
      sharded_ = type(value).dim(axis_).has_value();
      passed += !crosses;
    }
  }

  // The value that was found last.
  ValueId source() const { return source_; }

private:
  std::string axis_name(ValueId value) const {
    return ir::print_axes(program_, type(value).mesh(), AxisSet(axis_));
  }
  const ir::Type &type(ValueId value) const { return program_.types[result_.types[value.index]]; }

  // The operand whose kind the instruction merely passes on; none if the kind arises here.
  ValueId passes(InstId id) const {
    const ir::Inst &inst = program_.insts[id];
    if (rules::find_transition_op(plain_name(inst)) != rules::TransitionOp::None &&
        changes_axis(id, inst))
      return {};
    if (partial_stated(inst) && kind_ == Kind::Partial)
      return {};
    for (ValueId operand : tensors_of(program_, id))
      if (result_.types[operand.index].valid() &&
          type(operand).mesh() == type(inst.first_result).mesh() &&
          of_kind(type(operand), program_.contexts[inst.context]))
        return operand;
    return {};
  }

  // What the first caller passes for a parameter of a body that declares nothing itself.
  ValueId passed_in(ValueId value) const {
    std::optional<ir::FunctionId> function = function_of_param(program_, value);
    if (!function || program_.values[value].declared.valid())
      return {};
    for (ValueId operand : arguments_for_param(program_, *function, value))
      if (same_kind(operand, value))
        return operand;
    return {};
  }
  // What the body returns for the result of a call.
  ValueId returned(InstId id, ValueId value) const {
    const ir::Inst &inst = program_.insts[id];
    ValueId inner = returned_as(program_, id, value.index - inst.first_result.index);
    return inner.valid() && !program_.values[value].declared.valid() && same_kind(inner, value)
               ? inner
               : ValueId();
  }
  bool same_kind(ValueId from, ValueId to) const {
    return result_.types[from.index].valid() && result_.types[to.index].valid() &&
           type(from).mesh() == type(to).mesh() &&
           of_kind(type(from), program_.contexts[ir::ContextId{0}]);
  }

  bool of_kind(const ir::Type &type, const ir::Context &context) const {
    bool either = type.either().contains(axis_);
    bool enters = !sharded_ && program_.local_axes(context).contains(axis_); // a local region
    if (kind_ == Kind::Varying && type.dim(axis_).has_value() != sharded_ && !enters)
      return false;
    return either_ ? either : !either && type.of(kind_).contains(axis_);
  }
  std::string_view kind_name() const {
    if (sharded_)
      return "sharded";
    return either_ ? "replicate or invariant" : ir::info(kind_).name;
  }

  llvm::StringRef plain_name(const ir::Inst &inst) const {
    llvm::StringRef name = program_.op_name(inst.op);
    name.consume_back("_");
    return name;
  }
  bool names_axis(const ir::AttrValue *attr) const {
    if (!attr || attr->form != ir::AttrForm::Axes)
      return false;
    for (const ir::AxisRef &ref : program_.axis_refs[attr->as<ir::AxisRefsId>()].refs)
      for (const ir::Mesh &mesh : program_.meshes.all())
        if (axis_.index < mesh.axes.size() && mesh.axes[axis_.index].name == ref.axis)
          return true;
    return false;
  }
  bool changes_axis(InstId id, const ir::Inst &inst) const {
    if (program_.find(inst.attrs, "group"))
      return runs_over(program_, id, AxisSet(axis_));
    const ir::AttrValue *axis = program_.find(inst.attrs, "axis");
    return !axis || names_axis(axis);
  }
  bool partial_stated(const ir::Inst &inst) const {
    return names_axis(program_.find(inst.attrs, "partial"));
  }

  std::string through(unsigned passed) const {
    return passed ? fmt::format(", passed on by {} op{}", passed, passed == 1 ? "" : "s") : "";
  }

  Note declared(ValueId value, unsigned passed) const {
    if (is_observed(program_, value, axis_))
      return note_of_observed(program_, value, axis_, through(passed));
    Note note = note_at_declaration(program_, value);
    const ir::TypeId id = program_.values[value].declared;
    const bool stated = program_.find_param(value) || id.valid();
    // That an axis cuts it may have been inferred.
    const bool cut = !id.valid() || program_.types[id].dim(axis_).has_value();
    note.text = fmt::format("{} {} {} on {}{}", ir::print_named(program_, value),
                            stated ? "is declared" : "enters the body",
                            sharded_ && !cut ? ir::info(Kind::Varying).name : kind_name(),
                            axis_name(value), through(passed));
    return note;
  }

  Note made(InstId id, ValueId value, unsigned passed) const {
    const ir::Inst &inst = program_.insts[id];
    std::string_view name = program_.op_name(inst.op), kind = kind_name();
    std::string axis = axis_name(value);
    Note note;
    note.place = Place::inst(id);
    llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, id);
    if (tensors.size() == 1 && rules::boundary_of(program_, inst.op) == rules::Boundary::Grad)
      return note.text = gradient_text(tensors.front(), axis) + through(passed), note;
    if (partial_stated(inst))
      note.text =
          program_.mode == ir::Mode::Global
              ? fmt::format("`{}` summed over a dimension sharded on {}{}", name, axis,
                            through(passed))
              : fmt::format("`{}` summed over a dimension that differs along {}, stated partial{}",
                            name, axis, through(passed));
    else if (program_.values[value].declared.valid())
      note.text = fmt::format("the result of `{}` is stated as {} on {}{}", name, kind, axis,
                              through(passed));
    else
      note.text = fmt::format("`{}` made it {} on {}{}", name, kind, axis, through(passed));
    return note;
  }

  // `%w is replicate on tp, so its gradient is partial`
  std::string gradient_text(ValueId of, const std::string &axis) const {
    std::optional<Kind> kind = type(of).kind(axis_);
    return fmt::format("{} is {} on {}, so its gradient is {}", ir::print_named(program_, of),
                       type(of).dim(axis_) ? "sharded"
                       : kind              ? ir::info(*kind).name
                                           : "replicate or invariant",
                       axis, kind_name());
  }

  const ir::Program &program_;
  const CheckResult &result_;
  AxisId axis_;
  Kind kind_;
  bool either_, sharded_;
  ValueId source_;
};

ir::MeshId type_mesh(const ir::Program &program, const Finding &finding) {
  return program.contexts[program.insts[finding.place.as_inst()].context].mesh;
}

// Where the kind comes from that a write would bring in: from an operand other than the target.
std::optional<Note> brought_in(const ir::Program &program, const CheckResult &result,
                               const rules::MutationChangesType &change,
                               llvm::ArrayRef<ValueId> tensors) {
  for (AxisId axis : change.axes)
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::optional<Kind> kind = program.types[change.after].kind(axis);
      ir::TypeId type = result.types[tensors[i].index];
      if (i == change.operand.index || !kind || !type.valid() ||
          program.types[type].kind(axis) != kind)
        continue;
      Note note = Origin(program, result, axis, program.types[type]).find(tensors[i]);
      note.form = Note::Form::Because;
      return note;
    }
  return std::nullopt;
}

// `convert` takes %x from invariant to replicate on tp: its backward is `all_reduce`
std::string forward_text(const ir::Program &program, const CheckResult &result, InstId id,
                         AxisSet axes) {
  const ir::Inst &inst = program.insts[id];
  std::string_view name = program.op_name(inst.op);
  rules::ResolvedOp op = rules::resolve_op(program, inst.op);
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, id);
  std::string text = fmt::format("it belongs to the backward of `{}`", name);
  if (op.form != rules::OpForm::Transition || tensors.empty() || inst.result_count == 0)
    return text;
  const ir::Type &from = program.types[result.types[tensors.front().index]];
  const ir::Type &to = program.types[result.types[inst.first_result.index]];
  for (AxisId axis : axes.empty() ? from.claimed() : axes) {
    std::optional<Kind> src = from.kind(axis), dst = to.kind(axis);
    if (!dst && to.either().contains(axis))
      dst = Kind::Replicate;
    if (!src || !dst || src == dst || from.mesh() != to.mesh())
      continue;
    if (rules::unstated_words(op.transition).reduces && src == Kind::Varying)
      src = Kind::Partial;
    const rules::Transition *row = rules::find_transition(op.transition, *src, *dst);
    if (!row || row->composed)
      continue;
    std::string backward =
        row->dual.op == op.transition && row->dual.src == *src
            ? fmt::format("its backward is the same")
            : fmt::format("its backward is `{}`, {} to {}", row->dual.name(),
                          ir::info(row->dual.src).name, ir::info(row->dual.dst).name);
    return fmt::format("{}, {} to {} on {}: {}", text, ir::info(*src).name, ir::info(*dst).name,
                       ir::print_axes(program, to.mesh(), AxisSet(axis)), backward);
  }
  return text;
}

bool is_backward(const ir::Program &program, const ir::Inst &inst) {
  bool gradient = inst.phase == ir::Phase::Backward || inst.bwd_of.valid();
  for (uint32_t r = 0; r < inst.result_count; ++r)
    gradient |= program.values[inst.result(r)].grad_of.valid();
  return gradient;
}

// Where a gradient of another kind than is needed comes from.
std::optional<Note> since_made(const ir::Program &program, const CheckResult &result,
                               const rules::GradientTypeMismatch &wrong, const ir::Inst &inst) {
  for (uint32_t r = 0; r < inst.result_count; ++r)
    if (ValueId made = inst.result(r); program.values[made].grad_of == wrong.value)
      return Origin(program, result, wrong.axes.first(), program.types[wrong.found]).find(made);
  return std::nullopt;
}

// Where the kind of a value comes from that a finding names as such, and not as an operand.
std::optional<Note> since_value(const ir::Program &program, const CheckResult &result,
                                const Finding &finding) {
  AxisSet axes = rules::axes_of(finding.violation);
  ValueId value;
  ir::TypeId known_as;
  if (const auto *claim = finding.violation.as<rules::ClaimMismatch>())
    value = claim->value, known_as = claim->found;
  else if (const auto *loss = finding.violation.as<rules::LossKind>())
    value = loss->value;
  else if (const auto *loose = finding.violation.as<rules::NoSpec>())
    value = loose->value;
  else
    return std::nullopt;
  value = value_of(program, finding, value);
  if (!value.valid() || axes.empty() || finding.clash < result.clashes.size())
    return std::nullopt;
  known_as = known_as.valid() ? known_as : result.types[value.index];
  if (!known_as.valid() || !program.types[known_as].kind(axes.first()))
    return std::nullopt;
  Note note = Origin(program, result, axes.first(), program.types[known_as]).find(value);
  if (note.text.empty() || note.place == finding.place)
    return std::nullopt;
  return note;
}

} // namespace

ValueId parameter_of(const ir::Program &program, const CheckResult &result,
                     const Finding &finding) {
  if (finding.place.form != Place::Form::Inst ||
      finding.violation.is<rules::GradientTypeMismatch>() ||
      finding.violation.is<rules::UnreducedGradient>())
    return {};
  const llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, finding.place.as_inst());
  for (uint32_t operand : operands_named(finding.violation)) {
    if (operand >= tensors.size())
      continue;
    ValueId gradient =
        pending_gradient(program, result, tensors[operand], {}, rules::axes_of(finding.violation));
    if (gradient.valid())
      return gradient;
  }
  return {};
}

namespace {

// What the framework would have to be reported for it to reduce the gradient of the parameter, by
// the trace.
void add_hints(const ir::Program &program, ValueId value, const Finding &finding,
               llvm::SmallVectorImpl<Note> &notes) {
  const ir::Param *param = program.find_param(value);
  const ir::Mesh &mesh = program.meshes[mesh_of(program, finding.place)];
  auto concerns = [&](const ir::AxisRef &ref) {
    for (AxisId axis : rules::axes_of(finding.violation))
      if (mesh[axis].name == ref.axis)
        return true;
    return false;
  };
  for (const ir::SyncHint &hint : param ? param->grad.hints : std::vector<ir::SyncHint>())
    if (llvm::any_of(program.axis_refs[hint.axes].refs, concerns))
      notes.push_back({Note::Form::Hint, {}, false, program.strings[hint.text].str()});
}

// The parameter whose gradient the finding is about, and which setting of the framework reduces it.
void explain_parameter(const ir::Program &program, const CheckResult &result,
                       const Finding &finding, llvm::SmallVectorImpl<Note> &notes) {
  const ValueId made_of = parameter_of(program, result, finding);
  if (made_of.valid())
    notes.push_back({Note::Form::Gradient,
                     {},
                     false,
                     "it is made of the gradient of " + ir::print_named(program, made_of)});
  const ValueId param = made_of.valid() ? made_of : blamed_parameter(program, finding);
  if (param.valid())
    add_hints(program, param, finding, notes);
}

} // namespace

namespace {

// The collective whose word is in question, and the other use of its result.
llvm::SmallVector<Note, 2> explain_clash(const ir::Program &program, const UndecidedClash &clash) {
  std::string axes = ir::print_axes(
      program, program.contexts[program.insts[clash.collective].context].mesh, clash.axes);
  std::string user = "the output";
  if (clash.first.form == Place::Form::Inst)
    user = fmt::format("`{}`", program.op_name(program.insts[clash.first.as_inst()].op));
  return {{Note::Form::Since, Place::inst(clash.collective), true,
           fmt::format("`{}` states no `dst`: its uses decide between R and I on {}",
                       program.op_name(program.insts[clash.collective].op), axes)},
          {Note::Form::Because, clash.first, true,
           fmt::format("{} needs it {} on {}", user, ir::info(clash.needed).name, axes)}};
}

void collect_symbols(const ir::Program &program, ir::Extent extent,
                     llvm::SmallVectorImpl<ir::StringId> &names) {
  if (extent.is_number())
    return;
  const ir::Expr &expr = program.exprs[extent.expr()];
  if (expr.form != ir::Expr::Form::Symbol) {
    collect_symbols(program, expr.left, names);
    collect_symbols(program, expr.right, names);
  } else if (!llvm::is_contained(names, expr.symbol)) {
    names.push_back(expr.symbol);
  }
}

Note note_at_symbol(const ir::Program &program, const ir::SymbolInfo &symbol) {
  std::string facts;
  const std::pair<const char *, std::optional<int64_t>> stated[] = {
      {"min", symbol.min}, {"max", symbol.max}, {"multiple_of", symbol.multiple_of}};
  for (const auto &[name, value] : stated)
    if (value)
      facts += fmt::format("{}{} = {}", facts.empty() ? "" : ", ", name, *value);
  auto index = static_cast<uint32_t>(&symbol - &*program.symbols.begin());
  return {Note::Form::Since,
          {Place::Form::Symbol, index},
          true,
          fmt::format("`{}` is declared with {}", program.strings[symbol.name],
                      facts.empty() ? "no facts" : facts)};
}

// Where the symbols are declared, and what would decide.
llvm::SmallVector<Note, 2> explain_symbols(const ir::Program &program,
                                           const rules::UndecidedExtents &open) {
  llvm::SmallVector<ir::StringId, 4> names;
  collect_symbols(program, open.a, names);
  collect_symbols(program, open.b, names);
  llvm::SmallVector<Note, 2> notes;
  for (ir::StringId name : names)
    if (const ir::SymbolInfo *symbol = program.symbols.find(name);
        symbol && notes.size() + 1 < kMaxNotes)
      notes.push_back(note_at_symbol(program, *symbol));
  bool rest = open.b == ir::Extent(0) && !open.a.is_number() &&
              program.exprs[open.a.expr()].form == ir::Expr::Form::Modulo;
  std::string hint =
      fmt::format("if they are always equal, write {} for {}; if never, state `min` and "
                  "`max` that keep them apart",
                  open.left, open.right);
  if (rest) {
    const ir::Expr &expr = program.exprs[open.a.expr()];
    auto text = [&](ir::Extent extent) {
      return ir::print(extent, program.exprs, program.strings);
    };
    hint = expr.right.is_number()
               ? fmt::format("state `multiple_of` of its symbols so that {} divides {}",
                             text(expr.right), text(expr.left))
               : fmt::format("write {} as a product with {}", text(expr.left), text(expr.right));
  } else if (open.a.is_number() || open.b.is_number()) {
    hint = "if the symbol has this one value, state it as `min` and `max`; if never, bounds "
           "without it";
  }
  notes.push_back({Note::Form::Hint, {}, false, std::move(hint)});
  return notes;
}

// Where an addend that is the same on all ranks runs into a sum over them, and belongs behind it.
void add_sum_ahead(const ir::Program &program, const Finding &finding,
                   const rules::InvariantMixed &mixed, llvm::ArrayRef<ValueId> tensors,
                   llvm::SmallVectorImpl<Note> &notes) {
  if (mixed.kind != Kind::Varying)
    return;
  InstId sum = reducing_collective_of(program, finding.place.as_inst(), mixed.axes);
  if (!sum.valid())
    return;
  notes.push_back(
      {Note::Form::Because, Place::inst(sum), true,
       fmt::format("`{}` sums the result over {}: an addend that is the same on all ranks counts "
                   "once per rank",
                   program.op_name(program.insts[sum].op),
                   ir::print_axes(program, type_mesh(program, finding), mixed.axes))});
  if (mixed.operand.index < tensors.size())
    notes.push_back({Note::Form::Hint,
                     {},
                     false,
                     fmt::format("add {} to what that sum makes, where it counts once",
                                 ir::print_named(program, tensors[mixed.operand.index]))});
}

} // namespace

// What a run has to say for itself; what brought the kind about is no matter there.
static llvm::SmallVector<Note, 2> explain_run(const Finding &finding) {
  llvm::StringMap<std::string> texts;
  rules::for_each_field(finding.violation, [&](std::string_view name, const rules::Field &field) {
    if (const auto *text = std::get_if<std::string>(&field))
      texts[llvm::StringRef(name.data(), name.size())] = *text;
    else if (const auto *number = std::get_if<int64_t>(&field))
      texts[llvm::StringRef(name.data(), name.size())] = std::to_string(*number);
  });
  llvm::SmallVector<Note, 2> notes;
  auto add = [&](Note::Form form, std::string text) {
    if (!text.empty())
      notes.push_back({form, finding.place, /*has_place=*/false, std::move(text)});
  };
  if (!texts["first"].empty()) {
    std::string bound = texts["bound"].empty() ? "the comparison is exact"
                                               : "rounding explains at most " + texts["bound"];
    add(Note::Form::Measured,
        fmt::format("at {} {} where the reference has {} (ranks {})", texts["first"], texts["got"],
                    texts["want"], texts["ranks"]));
    add(Note::Form::Measured,
        fmt::format("largest difference {}; {} ({} tier, seed {})", texts["difference"], bound,
                    texts["tier"], texts["seed"]));
  }
  add(Note::Form::Guess, texts["guess"]);
  if (!texts["later"].empty())
    add(Note::Form::Measured,
        "refuted after it, perhaps by what follows from it: " + texts["later"]);
  add(Note::Form::Rerun, texts["rerun"]);
  return notes;
}

// Where the first operand that has a wrong scale got it; the operand of the finding first.
static std::optional<Note> since_scale(const ir::Program &program, const CheckResult &result,
                                       const rules::ScaleMismatch &wrong, AxisSet axes,
                                       llvm::SmallVector<ValueId, 4> tensors) {
  if (wrong.operand.index < tensors.size())
    std::swap(tensors.front(), tensors[wrong.operand.index]);
  for (ValueId value : tensors)
    if (std::optional<Note> note = explain_scale(program, result, axes, value)) {
      note->form = Note::Form::Since;
      return note;
    }
  return std::nullopt;
}

llvm::SmallVector<Note, 2> explain_value(const ir::Program &program, const CheckResult &result,
                                         ValueId value) {
  llvm::SmallVector<Note, 2> notes;
  if (!result.types[value.index].valid())
    return notes;
  auto add = [&](Note note) {
    if (llvm::none_of(notes, [&](const Note &other) {
          return other.place == note.place && other.text == note.text;
        }))
      notes.push_back(std::move(note));
  };
  const ir::Type &type = program.types[result.types[value.index]];
  for (AxisId axis : type.claimed() - type.unknown - type.zero()) {
    Origin origin(program, result, axis, type);
    add(origin.find(value));
    if (std::optional<Note> evidence = explain_evidence(program, result, origin.source(), axis))
      add(std::move(*evidence));
  }
  return notes;
}

llvm::SmallVector<Note, 2> explain_finding(const ir::Program &program, const CheckResult &result,
                                           const Finding &finding) {
  if (finding.info().drawn_by == rules::ReportedBy::Run)
    return explain_run(finding);
  if (const auto *open = finding.violation.as<rules::UndecidedExtents>())
    return explain_symbols(program, *open);
  if (const auto *ranks = finding.violation.as<rules::RanksDiverge>())
    return {{Note::Form::Because, {}, false, ranks->ranks + ": " + ranks->stack},
            {Note::Form::Because, {}, false, ranks->others + ": " + ranks->other_stack}};
  if (const auto *wrong = finding.violation.as<rules::WrongGradient>())
    return notes_of_measured(program, wrong->value);
  llvm::SmallVector<Note, 2> notes;
  if (finding.clash < result.clashes.size())
    notes = explain_clash(program, result.clashes[finding.clash]);
  AxisSet axes = rules::axes_of(finding.violation);
  if (std::optional<Note> note = since_value(program, result, finding))
    notes.push_back(std::move(*note));
  if (finding.place.form != Place::Form::Inst) {
    explain_parameter(program, result, finding, notes);
    return notes;
  }
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program, finding.place.as_inst());
  if (const auto *scale = finding.violation.as<rules::ScaleMismatch>()) {
    if (std::optional<Note> note = since_scale(program, result, *scale, axes, tensors))
      notes.push_back(std::move(*note));
    return notes;
  }
  for (uint32_t operand : operands_named(finding.violation)) {
    if (operand >= tensors.size() || notes.size() == kMaxNotes)
      continue;
    const ir::Type &type = program.types[result.types[tensors[operand].index]];
    for (AxisId axis : axes) {
      if (!type.kind(axis) && !type.either().contains(axis))
        continue;
      Note note = Origin(program, result, axis, type).find(tensors[operand]);
      note.form = notes.empty() ? Note::Form::Since : Note::Form::Because;
      bool reported = finding.clash < result.clashes.size() &&
                      note.place == Place::inst(result.clashes[finding.clash].collective);
      if (!reported)
        notes.push_back(std::move(note));
      break;
    }
  }
  if (const auto *change = finding.violation.as<rules::MutationChangesType>())
    if (std::optional<Note> note = brought_in(program, result, *change, tensors))
      notes.push_back(std::move(*note));
  if (const auto *mixed = finding.violation.as<rules::InvariantMixed>())
    add_sum_ahead(program, finding, *mixed, tensors, notes);
  const ir::Inst &inst = program.insts[finding.place.as_inst()];
  if (const auto *wrong = finding.violation.as<rules::GradientTypeMismatch>())
    if (std::optional<Note> note = since_made(program, result, *wrong, inst))
      notes.push_back(std::move(*note));
  if (InstId forward; is_backward(program, inst) &&
                      (forward = forward_of(program, finding.place.as_inst(), axes)).valid())
    notes.push_back({Note::Form::Gradient, Place::inst(forward), true,
                     forward_text(program, result, forward, axes)});
  if (finding.inferred)
    if (std::optional<Note> note = evidence_of_finding(program, result, tensors, axes))
      notes.push_back(std::move(*note));
  explain_parameter(program, result, finding, notes);
  for (size_t i = 1; i < notes.size();) // one origin of several operands is reported once
    if (llvm::any_of(ir::as_array(notes).take_front(i), [&](const Note &earlier) {
          return earlier.place == notes[i].place && earlier.text == notes[i].text;
        }))
      notes.erase(notes.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  return notes;
}

} // namespace spmd::checker
