// The walk over a program in order. A rule is applied to each instruction and its findings are
// placed; what the rules cannot see (claims, aliases, meshes, missing types) is settled here,
// before the look-up.
#include "checker/check.h"

#include "checker/gradual/gradual.h"
#include "checker/report/provenance.h"
#include "checker/suppress.h"
#include "checker/walk/walk.h"

#include "rules/boundary/loss.h"
#include "rules/kinds/scale.h"
#include "rules/ops/registry.h"
#include "rules/shapes/extent_facts.h"
#include "rules/shards/remesh.h"
#include "rules/shards/shards.h"
#include "rules/violations/claims.h"
#include "rules/violations/coverage.h"
#include "rules/violations/gradients.h"
#include "rules/violations/norms.h"
#include "rules/violations/operands.h"
#include "rules/violations/shards.h"

#include "ir/dialect/dialect.h"
#include "ir/mesh/axis_scale.h"
#include "ir/text/text.h"

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::Type;
using ir::ValueId;

namespace {

constexpr uint32_t kProgressOps = 1 << 15; // how often progress is told

// What leaves a local region, stated inside of it, says how its pieces join.
rules::Spec joining_in(const ir::Program &program, const ir::Inst &inst) {
  return program.contexts[inst.context].local ? rules::Spec::Joined : rules::Spec::Compared;
}

bool is_state_role(ir::Role role) {
  return role == ir::Role::Param || role == ir::Role::Buffer || role == ir::Role::OptState;
}

} // namespace

bool CheckResult::clean() const {
  for (const Finding &finding : findings)
    if (finding.severity() == rules::Severity::Error)
      return false;
  return true;
}

CheckResult check(ir::Program &program, const CheckOptions &options) {
  if (options.mode.value_or(program.mode) == ir::Mode::Gradual)
    return check_gradually(program, options);
  if (options.mode)
    program.mode = *options.mode;
  CheckResult result;
  Walk(program, options, result).run();
  apply_suppressions(program, options, result);
  return result;
}

Walk::Walk(ir::Program &program, const CheckOptions &options, CheckResult &result)
    : program_(program), options_(options), result_(result), rules_(program, options.memoise),
      storage_(program), boundary_(program, rules_), state_(program.values.size()),
      cache_(program.values.size()), open_(program.values.size()),
      unites_(ir::dialect_of(program) == ir::Dialect::LTensor) {
  result.types.resize(program.values.size());
  result.shapes.resize(program.values.size());
  result.sizes.resize(program.values.size());
  if (result.gradual)
    result.proved.resize(program.values.size());
  llvm::ArrayRef<ir::Value> values = program.values.all();
  for (uint32_t i = 0; i < values.size(); ++i) {
    ValueId of = values[i].grad_of;
    if (!of.valid())
      continue;
    if (first_gradients_.empty())
      first_gradients_.resize(values.size());
    if (ValueId &first = first_gradients_[of.index]; !first.valid())
      first = ValueId{i};
  }
}

void Walk::run() {
  caches_ = options_.memoise && !mover && !unites_ && !gradual();
  declared_gradients();
  for (uint32_t i = 0; i < program_.params.size(); ++i)
    declare(i);
  const size_t declared = trail_->entries.size();
  const uint32_t first = program_.main.first.index, last = program_.main.last.index;
  for (uint32_t i = first; i < last; ++i) {
    instruction(InstId{i});
    if (options_.progress && (i - first) % kProgressOps == kProgressOps - 1)
      options_.progress(i - first, last - first);
  }
  const size_t told = trail_->entries.size();
  late_gradients(declared);
  const size_t late = trail_->entries.size() - told;
  for (uint32_t i = 0; i < program_.outputs.size(); ++i)
    output(i);
  unread_gradients();
  settle_open(declared, told, late);
  Collector(program_, instances_).add(main_, result_);
  open_.settle_words(result_);
  caches_ = false;
  keep_typings();
  main_ = {};
  result_.stats.applications = rules_.distinct();
}

void Walk::resume() {
  recording_ = false;
  for (const InferredAt &at : result_.inferred)
    if (at.why != InferredAt::Why::Call && at.why != InferredAt::Why::NoGradient)
      words_[at.inst.index].push_back({at.word.axes, at.word.dst.kind});
  for (const ir::Param &param : program_.params)
    if (is_state_role(param.role))
      state_[param.value.index] = true;
  for (uint32_t i = 0; i < program_.values.size(); ++i)
    storage_.define(ValueId{i});
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
    if (!rules_.resolve(program_.insts[InstId{i}].op).transition.empty())
      moves(InstId{i});
  for (const ir::Param &param : program_.params)
    if (param.role == ir::Role::Param && param.grad.stated)
      boundary_.contracts[*boundary_.param_of(param.value)] = contract(param.value);
}

// The optimizer reads a gradient again and again; its wrong scale is told where it does so first.
bool Walk::scale_told(Place place, const rules::ScaleMismatch &wrong) {
  bool inst = place.form == Place::Form::Inst;
  if (trail_ != &main_ || (!inst && place.form != Place::Form::Output))
    return false;
  ValueId value = wrong.value;
  if (!value.valid() && inst) {
    llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, place.as_inst());
    value = wrong.operand.index < tensors.size() ? tensors[wrong.operand.index] : value;
  }
  if (!value.valid())
    return false;
  ValueId root = storage_.root(value);
  root = root.valid() ? root : value;
  Place first = scale_told_.try_emplace(root.index, place).first->second;
  bool again = inst ? program_.insts[place.as_inst()].phase == ir::Phase::Optimizer
                    : program_.outputs[place.index].role == ir::OutputRole::Grad ||
                          program_.outputs[place.index].role == ir::OutputRole::State;
  return again && first != place;
}

void Walk::report(Place place, rules::Violation violation, uint32_t application) {
  bool inferred = false;
  if (gradual()) {
    if (!certain(place, violation) || again_in_optimizer(place, violation)) {
      if (place.form == Place::Form::Inst)
        open_axes_ |= rules::axes_of(violation);
      scale_open_ |= violation.is<rules::ScaleMismatch>();
      return;
    }
    inferred = gradual()->stands_on_inference(place, violation);
  }
  quiet_ = false;
  if (place.form == Place::Form::Inst)
    told_axes_ |= rules::axes_of(violation);
  if (const auto *wrong = violation.as<rules::ScaleMismatch>())
    if (scale_told(place, *wrong))
      return;
  Finding finding{std::move(violation), place, application, false, {}};
  finding.inferred = inferred;
  trail_->entries.push_back({std::move(finding)});
}

// The number of a rank's own elements divides its own sums: a mean for each rank.
void Walk::take_counts(const rules::ResolvedOp &op) {
  counted_ = {};
  if (!op.row || op.row->name != "div" || args_.size() != 2 || !args_[1].shape.valid())
    return;
  Type type = program_.types[args_[1].type];
  AxisSet pending = type.of(Kind::Partial) - type.zero() - type.unknown;
  const ir::Shape &shape = program_.shapes[args_[1].shape];
  if (!pending || !shape.ranked || !shape.dims.empty() || !type.gradient_free())
    return;
  counted_ = pending;
  type.set_kind(pending, Kind::Replicate);
  args_[1].type = intern(type);
}

// A tensor that is made of the number 0 is of every kind and scale.
bool Walk::makes_zero(const ir::Inst &inst) {
  const rules::OpDef *row = rules_.resolve(inst.op).row;
  if (!row || row->constant != rules::OpDef::Constant::Either)
    return false;
  for (llvm::StringRef name : {"s", "value", "fill_value"})
    if (const ir::AttrValue *value = program_.find(inst.attrs, name))
      return (value->form == ir::AttrForm::Integer && value->bits == 0) ||
             (value->form == ir::AttrForm::Float && std::bit_cast<double>(value->bits) == 0);
  return false;
}

// Blocks of zeros are of the scale of what they are put together with.
void Walk::scale_zeros() {
  if (zero_blocks_.empty())
    return;
  auto is_zero = [&](size_t i) { return zero_blocks_.count(operands_.values[i].index) != 0; };
  std::optional<ir::ScaleId> scale;
  for (size_t i = 0; i < args_.size() && !scale; ++i)
    if (ir::ShapeId shape = args_[i].shape;
        !is_zero(i) && shape.valid() && ir::differentiable(program_.shapes[shape].dtype))
      scale = program_.types[args_[i].type].scale;
  for (size_t i = 0; i < args_.size() && scale; ++i)
    if (is_zero(i)) {
      Type type = program_.types[args_[i].type];
      type.scale = *scale;
      args_[i].type = intern(type);
    }
}

// What is pending is so still when it is multiplied by something unknown, which was reported.
void Walk::keep_addends(const rules::ResolvedOp &op, uint32_t result, uint32_t results,
                        Type &type) {
  if (!op.row || (op.row->name != "mul" && op.row->name != "div") || args_.size() < results)
    return;
  const Type &kept = program_.types[args_[result].type];
  AxisSet pending = kept.of(Kind::Partial) - kept.zero() - kept.unknown;
  type.set_kind(pending & type.unknown & unknown_operands() & ~told_axes_, Kind::Partial);
}

// What the instruction makes of norms of blocks, and what is wrong with it.
void Walk::norms(InstId id, const rules::Application &app) {
  made_norms_.clear();
  looked_up_ = lookups_.made(app, operands_.values);
  for (uint32_t r = 0; r < app.results.size(); ++r) {
    Norms::Made made = norms_.made(app, operands_.values, r);
    if (AxisSet axes = made.left_out - told_axes_)
      report(Place::inst(id), rules::NormUndercount{{made.operand}, axes});
    if (AxisSet axes = made.counted - told_axes_)
      report(Place::inst(id), rules::NormOvercount{{made.operand}, axes});
    made_norms_.push_back(made);
  }
}

// What is cut out of a bucket is what was put there. `type`: as it would be if nothing were known of its parts.
void Walk::restore(ValueId value, Type &type) const {
  const Pieces &pieces = gradual()->pieces();
  const ValueId whole = pieces.whole(value);
  if (!whole.valid() || program_.types[result_.types[whole.index]].mesh() != type.mesh())
    return;
  const Type &before = program_.types[result_.types[whole.index]];
  AxisSet loose = (type.of(Kind::Varying) - type.sharded()) | type.unknown;
  for (AxisId axis : loose - pieces.changed(value) - told_axes_ - before.unknown) {
    if (std::optional<Kind> kind = before.kind(axis);
        kind == Kind::Replicate || kind == Kind::Invariant)
      type.set_kind(axis, *kind);
    if (std::optional<unsigned> dim = before.dim(axis);
        dim && pieces.same_shape(value, whole) && ir::shards_of(type, *dim).empty()) {
      type.set_kind(axis, Kind::Varying);
      type.set_shard(axis, *dim, 0);
    }
  }
}

// The axes on which all that a flat tensor consists of is known.
AxisSet Walk::known_pieces(ValueId value, ir::MeshId mesh) const {
  llvm::ArrayRef<Pieces::Piece> pieces = gradual()->pieces().of(value);
  AxisSet axes = pieces.empty() ? AxisSet() : ~gradual()->pieces().changed(value);
  for (const Pieces::Piece &piece : pieces) {
    const Type &type = program_.types[result_.types[piece.of.index]];
    axes &= type.mesh() == mesh ? known_axes(type) : AxisSet();
  }
  return axes;
}

// A value is proved on an axis where all operands are, its rule applied there, and what it is follows.
void Walk::prove(InstId id, ValueId value, const Type &type) {
  AxisSet before = ~AxisSet(), axes = program_.meshes[type.mesh()].typed_axes();
  for (ValueId operand : operands_.values)
    before &= result_.proved[operand.index];
  AxisSet proved =
      (axes & before & (known_axes(type) | norms_.root(value).axes | looked_up_.looked_up)) -
      told_axes_ - open_axes_;
  // How tensors lie behind one another is no question of cuts.
  proved |= axes & before & known_pieces(value, type.mesh());
  for (AxisId axis : (axes & before) - proved)
    if (llvm::none_of(result_.lost, [&](const auto &each) { return each.first == axis; }))
      result_.lost.push_back({axis, id});
  result_.proved[value.index] = proved;
}
// Kind, cut and scale are known there.
AxisSet Walk::known_axes(const Type &type) const {
  if (!type.scale.valid())
    return {};
  return program_.meshes[type.mesh()].typed_axes() - type.unknown -
         (type.of(Kind::Varying) - type.sharded());
}

// The optimizer reads a gradient that is pending more than once.
bool Walk::again_in_optimizer(Place place, rules::Violation &violation) {
  const rules::OperandIndex *operand = violation.operand();
  if (place.form != Place::Form::Inst || !operand || operand->index >= operands_.values.size() ||
      program_.insts[place.as_inst()].phase != ir::Phase::Optimizer)
    return false;
  const ValueId value = operands_.values[operand->index];
  if ((program_.types[args_[operand->index].type].of(Kind::Partial) & rules::axes_of(violation))
          .empty())
    return false;
  Place &first = pending_told_.try_emplace(value.index, place).first->second;
  return first != place;
}

// Whether a finding does not depend on what is unknown of the operands.
bool Walk::certain(Place place, rules::Violation &violation) {
  AxisSet open;
  // What is printed or logged goes no further.
  if (place.form == Place::Form::Inst)
    if (const rules::OpDef *row = rules_.resolve(program_.insts[place.as_inst()].op).row;
        row && row->name == "item")
      open = ~AxisSet();
  auto add = [&](ir::TypeId id, AxisSet roots = {}) {
    if (id.valid())
      open |= program_.types[id].unknown |
              (program_.types[id].of(Kind::Varying) - program_.types[id].sharded() - roots);
  };
  if (place.form == Place::Form::Inst)
    for (size_t i = 0; i < args_.size(); ++i)
      add(args_[i].type, norms_.root(operands_.values[i]).axes);
  if (const ValueId *value = violation.value(); value && value->valid())
    add(result_.types[value->index]);
  // A gradient that is the rank's own, or that of a block which was inferred, may be right.
  if (const auto *mismatch = violation.as<rules::GradientTypeMismatch>()) {
    add(mismatch->found);
    const ir::TypeId of =
        mismatch->value.valid() ? result_.types[mismatch->value.index] : ir::TypeId();
    for (AxisId axis : of.valid() ? program_.types[of].sharded() : AxisSet())
      if (gradual()->cuts().origin(mismatch->value, axis).value_or(Origin::Stated) !=
          Origin::Stated)
        open |= axis;
  }
  // Of what is not proved the scale is a guess.
  if (violation.is<rules::ScaleMismatch>()) {
    for (ValueId value : operands_.values)
      if (place.form == Place::Form::Inst)
        open |= ~result_.proved[value.index];
    if (const ValueId *value = violation.value(); value && value->valid())
      open |= ~result_.proved[value->index];
  }
  // Counts and places of its own are what a rank may need them for.
  if (const rules::OperandIndex *operand = violation.operand();
      operand && place.form == Place::Form::Inst && operand->index < args_.size()) {
    ir::ShapeId shape = args_[operand->index].shape;
    if (shape.valid() && program_.shapes[shape].dtype != ir::DType::Unknown &&
        !ir::differentiable(program_.shapes[shape].dtype))
      open = ~AxisSet();
  }
  return gradual()->certain(place, violation, open);
}

// On these axes partition specs are no matter here. Regions make axes of their own mesh local.
AxisSet Walk::local_axes(ir::MeshId mesh, ir::ContextId id) const {
  const ir::Context &context = program_.contexts[id];
  const bool own = context.mesh == mesh;
  const size_t at = 2 * size_t(own ? id.index : mesh.index) + own;
  if (at >= local_axes_.size())
    local_axes_.resize(at + 1, InstructionCache::kNone);
  uint32_t &known = local_axes_[at];
  if (known == InstructionCache::kNone)
    known = (own ? program_.local_axes(context) : program_.local_axes(mesh)).bits();
  return AxisSet(static_cast<uint16_t>(known));
}

// A claim as it is judged at a place: without the specs of axes that are local there.
Type Walk::seen(ir::TypeId declared, ir::ContextId context) const {
  Type type = ir::canonical_scale(program_, program_.types[declared]);
  return type.erased(local_axes(type.mesh(), context));
}

bool Walk::gradient_free(const ir::Value &value, bool by_rule) const {
  if (value.shape.valid()) {
    ir::DType dtype = program_.shapes[value.shape].dtype;
    if (dtype != ir::DType::Unknown && !ir::differentiable(dtype))
      return true;
  }
  return value.requires_grad == ir::Tristate::Unstated ? by_rule
                                                       : value.requires_grad == ir::Tristate::False;
}

void Walk::judge_declaration(uint32_t index) {
  const ir::Param &param = program_.params[index];
  const ir::Value &value = program_.values[param.value];
  Type type;
  type.set_mesh(value.mesh.valid() ? value.mesh : program_.contexts[ir::ContextId{0}].mesh);
  if (value.declared.valid())
    type = seen(value.declared, ir::ContextId{0});
  bool carries = param.role == ir::Role::Input || param.role == ir::Role::Param;
  type.set_gradient_free(gradient_free(value, !carries));
  AxisSet axes = program_.meshes[type.mesh()].typed_axes();
  if (options_.permissive)
    type.unknown |= axes - type.claimed();
  undecided(index, type);
  rules::DeclaredSizes sizes;
  if (value.declared.valid() && program_.mode == ir::Mode::Global)
    sizes = rules::declared_sizes(program_, type, value.shape, value.global_shape,
                                  program_.rank.value_or(0));
  if (sizes.problem)
    report({Place::Form::Param, index}, std::move(*sizes.problem));
  learn(param.value, {intern(type), value.shape, sizes.sizes});
  if (gradual())
    result_.proved[param.value.index] =
        known_axes(type) - gradual()->copies().differing(param.value);
  storage_.define(param.value);
  if (is_state_role(param.role))
    state_[param.value.index] = true;
  declare_contract(index);
}

// `R|I` is decided by the gradient contract, or does not matter where no gradient flows.
void Walk::undecided(uint32_t index, Type &type) {
  AxisSet open = type.either() - type.zero();
  if (open.empty() || type.gradient_free())
    return;
  const ir::Param &param = program_.params[index];
  if (param.grad.grad.valid()) {
    ir::TypeId stated = program_.claims[param.grad.grad].type;
    if (stated.valid()) {
      const Type &grad = program_.types[stated];
      AxisSet partial = open & grad.of(Kind::Partial), invariant = open & grad.of(Kind::Invariant);
      type.set_kind(partial, Kind::Replicate);
      type.set_kind(invariant, Kind::Invariant);
      open -= partial | invariant;
    }
  }
  if (open.empty())
    return;
  report({Place::Form::Param, index}, rules::UndecidedKind{param.value, open});
  type.set_unknown(open);
}

void Walk::instructions(const ir::Body &body) {
  for (uint32_t i = body.first.index; i < body.last.index; ++i)
    instruction(InstId{i});
}

// Operands to which an ordinary op gives no gradient.
static llvm::SmallVector<uint32_t, 2> gradients_that_end(const rules::Outcome &outcome) {
  llvm::SmallVector<uint32_t, 2> operands;
  for (const rules::Violation &violation : outcome.violations)
    if (const auto *found = violation.as<rules::MissingVjp>())
      operands.push_back(found->operand.index);
  return operands;
}

void Walk::type_instruction(InstId id) {
  ir::Inst inst = program_.insts[id];
  const ir::Context &context = program_.contexts[inst.context];
  ++trail_->stats.ops;
  told_axes_ = open_axes_ = {};
  scale_open_ = false;
  looked_up_ = {};
  made_norms_.clear();
  operands_.read(program_, inst.operands);
  args_.clear();
  for (ValueId value : operands_.values)
    args_.push_back(known(value));
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  if (gradual()) {
    take_counts(op);
    scale_zeros();
  }
  if (edit_ && edit_->inst == id) {
    if (edit_->drop)
      return dropped(inst);
    edit_operands(inst);
    if (edit_->attrs.valid())
      inst.attrs = edit_->attrs;
  } else if (!edit_ && !program_.lacks(ir::Missing::Mutation)) {
    aliases(id);
  }
  if (before_)
    before_ = counted();
  if (!options_.permissive)
    missing(id, context);
  if (op.form == rules::OpForm::Boundary)
    boundary_operands(id, op.boundary);
  bool lifted = op.boundary == rules::Boundary::ReinterpretMesh || lift(id, inst);
  if (context.grad && (op.form == rules::OpForm::Transition || op.form == rules::OpForm::Call))
    if (cut_gradients(inst))
      before_.reset();
  claims_.clear();
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const ir::Value &value = program_.values[inst.result(i)];
    claims_.push_back({value.shape, value.declared, value.global_shape});
  }
  if (op.form == rules::OpForm::Unknown)
    ++trail_->stats.unknown_ops;
  if (op.assumed)
    report(Place::inst(id), rules::AssumedRule{rule_text(op)});
  if (op.form == rules::OpForm::Call) {
    before_.reset();
    rules::Outcome outcome;
    rows_.clear();
    call(id, inst, op, outcome);
    results(id, inst, outcome);
    return;
  }
  rules::Application app{program_,        op,    inst.attrs, inst.context,
                         operands_.slots, args_, claims_,    options_.infer_partial};
  if (!conditions_.empty())
    divergent(id, app);
  if (gradual() && Gradual::only_restates(app))
    return restated(id, inst);
  // Where an op gives an operand no gradient nothing is wrong if no parameter is behind it.
  auto judged = [&]() -> const rules::Outcome & {
    while (op.form == rules::OpForm::Equation) {
      bool changed = false;
      for (uint32_t at : gradients_that_end(rules_.apply(app))) {
        before_.reset(); // whether it is asked for depends on the value
        if (boundary_.needs_gradient(operands_.values[at]))
          continue;
        args_[at].type = rules::without_gradient(program_, args_[at].type);
        changed = true;
      }
      if (!changed)
        break;
    }
    return rules_.apply(app);
  };
  if (mover && lifted && context.implicit)
    mover(id, rules_, operands_.values, judged(), app, args_);
  if (unites_ && op.form == rules::OpForm::Equation && lifted && context.check)
    cast_implicitly(id, app, judged());
  const rules::Outcome &outcome = judged();
  uint32_t application = rules_.last_index();
  // Where checking is off nothing is refused; what does not follow is unknown.
  if (lifted && context.check) {
    for (const rules::Violation &violation : outcome.violations)
      report(Place::inst(id), named(violation), application);
    for (const rules::UndecidedExtents &open : outcome.undecided)
      report(Place::inst(id), open, application);
  }
  if (gradual())
    norms(id, app);
  for (const rules::InferredWord &word : outcome.inferred)
    trail_->inferred.push_back({id, word});
  if (recording_ && (open_.any() || !outcome.inferred.empty()))
    open_uses(id, app, outcome, application);
  if (op.form == rules::OpForm::Boundary && context.check)
    boundary_results(id, op.boundary, outcome);
  results(id, inst, outcome);
}

// Says of per-rank values what they are to each other. What is known already needs no such word, and the
// data are as they were.
void Walk::restated(InstId id, const ir::Inst &inst) {
  rules::Outcome outcome;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const rules::Arg &from = args_[std::min<size_t>(i, args_.size() - 1)];
    Type type = program_.types[from.type];
    type.set_unknown(type.of(Kind::Varying) - type.sharded());
    outcome.types.push_back(intern(type));
    outcome.shapes.push_back(from.shape);
    outcome.sizes.push_back(from.sizes);
  }
  results(id, inst, outcome);
}

// Rules do not know the names of values: where they leave one out, the first operand is meant.
rules::Violation Walk::named(rules::Violation violation) const {
  if (operands_.values.empty())
    return violation;
  ValueId *value = violation.value();
  const rules::OperandIndex *operand = violation.operand();
  if (value && !value->valid())
    *value = operands_.values[operand ? operand->index : 0];
  return violation;
}

std::string Walk::rule_text(const rules::ResolvedOp &op) const {
  std::string_view text = op.row ? op.row->equation.equation.text : op.transition;
  return std::string(text);
}

// A value without a claim on an axis is reported at its first use and silent from then on.
void Walk::missing(InstId id, const ir::Context &) {
  for (size_t i = 0; i < args_.size(); ++i) {
    Type type = program_.types[args_[i].type];
    AxisSet absent = program_.meshes[type.mesh()].typed_axes() - type.claimed();
    if (absent.empty())
      continue;
    report(Place::inst(id), rules::MissingClaim{{static_cast<uint32_t>(i)}, absent});
    type.unknown |= absent;
    args_[i].type = intern(type);
    learn_type(operands_.values[i], args_[i].type);
  }
}

// Operands on another mesh over the same ranks are seen on the mesh of the instruction.
bool Walk::lift(InstId id, const ir::Inst &inst) {
  ir::MeshId mesh = program_.contexts[inst.context].mesh;
  bool fine = true;
  for (size_t i = 0; i < args_.size(); ++i) {
    const Type type = program_.types[args_[i].type];
    if (type.mesh() == mesh)
      continue;
    rules::Remeshed seen = rules::remesh(program_, type, mesh, {static_cast<uint32_t>(i)});
    if (seen.violation) {
      report(Place::inst(id), *seen.violation);
      fine = false;
    }
    args_[i].type = intern(seen.type);
  }
  return fine;
}

// True if the last instruction of the trail is this one and something is wrong with it.
bool Walk::told_of(InstId id) const {
  for (const BodyResult::Entry &entry : llvm::reverse(trail_->entries)) {
    if (entry.instance != BodyResult::kNone || entry.finding->place != Place::inst(id))
      return false;
    if (entry.finding->severity() != rules::Severity::Info)
      return true;
  }
  return false;
}

void Walk::results(InstId id, const ir::Inst &inst, const rules::Outcome &outcome) {
  llvm::SmallVector<AxisSet, 4> unknown_axes(inst.result_count);
  mutation(id, inst, outcome, unknown_axes);
  type_results(id, inst, outcome, unknown_axes);
  const rules::ResolvedOp &op = rules_.resolve(inst.op);
  if (before_)
    note_cached(inst, op, outcome);
  before_.reset();
  gradients_and_moves(id, inst, !op.transition.empty());
}

void Walk::type_results(InstId id, const ir::Inst &inst, const rules::Outcome &outcome,
                        llvm::ArrayRef<AxisSet> unknown_axes) {
  bool checked = program_.contexts[inst.context].check;
  rules::OpForm form = rules_.resolve(inst.op).form;
  // Rules hold the shapes of their results against the stated ones themselves.
  bool by_rule = form == rules::OpForm::Equation || form == rules::OpForm::Transition;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId result = inst.result(i);
    const ir::Value &value = program_.values[result];
    ir::ShapeId shape = rules::stated_shape(program_, value.shape, outcome.shapes[i]);
    if (checked && !by_rule)
      claim_shape(id, result, value.shape, outcome.shapes[i]);
    Type type = program_.types[outcome.types[i]];
    ir::Value shaped = value;
    shaped.shape = shape;
    type.set_gradient_free(gradient_free(shaped, type.gradient_free()));
    if (!recording_)
      keep_word(id, type);
    type.set_unknown(unknown_axes[i]);
    if (value.declared.valid() && checked)
      claim(id, result, type, value.declared, joining_in(program_, inst));
    else if (value.declared.valid()) {
      bool free = type.gradient_free();
      type = seen(value.declared, inst.context);
      type.set_gradient_free(free);
      report(Place::inst(id), rules::UncheckedClaim{result, value.declared});
    }
    if (gradual()) {
      const AxisSet zero = type.zero();
      type = gradual()->known(result, type, ~(told_axes_ | unknown_operands()));
      if (zero && type.sharded().contains(zero))
        zero_blocks_.insert(result.index);
      if (makes_zero(inst))
        type.set_zero(program_.meshes[type.mesh()].typed_axes());
      keep_addends(rules_.resolve(inst.op), i, inst.result_count, type);
      if (i < made_norms_.size()) {
        norms_.learn(result, made_norms_[i]);
        type.set_kind(made_norms_[i].square.axes - told_axes_, Kind::Partial);
        open_axes_ -= made_norms_[i].root.axes | made_norms_[i].square.axes;
        lookups_.learn(result, looked_up_);
        type.set_kind(looked_up_.addends - told_axes_, Kind::Partial);
        open_axes_ -= looked_up_.looked_up | looked_up_.addends;
      }
      type.scale = ir::product(program_, type.scale, gradual()->numbers().scale(id, result_.types));
      type.scale =
          ir::product(program_, type.scale, ir::axes_scale(program_, type.mesh(), counted_));
      restore(result, type);
      if (scale_open_)
        type.scale = ir::ScaleId();
      prove(id, result, type);
    }
    trail_->stats.silent += static_cast<uint64_t>(type.unknown.size());
    learn(result, {intern(type), shape, outcome.sizes[i]});
    if (recording_ && (open_.any() || open_axes(type)))
      open_result(result, row_of(i), type);
    if (value.global_shape.valid())
      claim_sizes(id, result, type);
    if (!edit_)
      storage_.define(result);
  }
  if (edit_ && !edit_->gradients.empty())
    backward(*edit_, inst);
}

// The claim on a result decides what is undecided, and is reported where it contradicts.
void Walk::claim(InstId id, ValueId value, Type &type, ir::TypeId declared, rules::Spec spec) {
  // A statement that joins pieces speaks of the axes of the region.
  ir::ContextId around =
      spec == rules::Spec::Joined ? ir::ContextId{0} : program_.insts[id].context;
  Type claimed = seen(declared, around);
  if (claimed.mesh() != type.mesh())
    return;
  AxisSet region;
  if (spec == rules::Spec::Joined) {
    region = local_axes(type.mesh(), program_.insts[id].context);
    type.drop_shards(region & claimed.sharded());
    region -= local_axes(type.mesh(), around);
    take_as_addends(id, value, type, claimed, region);
  }
  rules::ClaimCheck check = rules::check_claim(type, claimed, type.gradient_free(), spec);
  if (AxisSet wrong = check.mismatched | check.unowned)
    report(Place::inst(id), rules::ClaimMismatch{value, intern(type), declared, wrong});
  if (recording_ && open_.any())
    meet(row_of(value.index - program_.insts[id].first_result.index), type, 0, check.type,
         Place::inst(id), [&](AxisId axis, Kind other) {
           return rules::ClaimMismatch{value, as_kind(type, axis, other), on_axes(claimed, axis),
                                       axis};
         });
  if (claimed.scale.valid() && claimed.scale != program_.one())
    claim_scale(id, value, type, claimed, region);
  check.type.scale = type.scale;
  type = check.type;
}

// A scale that is stated is the one that follows, but on the axes of a region (restate_scale); where none is
// stated nothing is reported.
void Walk::claim_scale(InstId id, ValueId value, Type &type, const Type &claimed, AxisSet region) {
  AxisSet axes = program_.meshes[type.mesh()].typed_axes();
  if (axes && type.zero().contains(axes)) // a zero is of every scale
    return;
  // What leaves a region that was put in its place is an `identity`; other ops keep what they were given.
  const rules::OpDef *row = rules_.resolve(program_.insts[id].op).row;
  if (!region || !row || row->name != "identity") {
    scale_claim_differs(id, value, type, claimed.scale, claimed.scale);
    return;
  }
  Args entered; // not as they are seen in the region
  for (ValueId operand : operands_.values)
    entered.push_back(known(operand));
  restate_scale(id, value, type, claimed, entered, region);
}

// Reports a declaration of another scale. `needed`: what is left of it to be held against the type.
bool Walk::scale_claim_differs(InstId id, ValueId value, const Type &type, ir::ScaleId needed,
                               ir::ScaleId claimed) {
  std::string other = "its declaration states " + ir::print_scale(program_, claimed, type.mesh());
  std::optional<rules::Violation> differs =
      rules::scale_differs(program_, type, needed, std::move(other), {}, value);
  if (differs)
    report(Place::inst(id), std::move(*differs));
  return differs.has_value();
}

// A shape that is stated of a result is the one that follows.
void Walk::claim_shape(InstId id, ValueId value, ir::ShapeId claimed, ir::ShapeId found) {
  std::string what = "the declared and the actual shape of " + ir::print_value(program_, value);
  if (std::optional<rules::Violation> differs =
          rules::shape_differs(program_, std::move(what), claimed, found))
    report(Place::inst(id), std::move(*differs));
}

// Global extents that the program states of a result must be those that follow; where nothing follows,
// they are believed.
void Walk::claim_sizes(InstId id, ValueId result, const Type &type) {
  const ir::Value &value = program_.values[result];
  if (program_.mode == ir::Mode::Local || type.unknown)
    return;
  AxisSet joined = type.sharded() & local_axes(type.mesh(), program_.insts[id].context);
  bool equation = rules_.resolve(program_.insts[id].op).form == rules::OpForm::Equation;
  if (joined && !(equation && gives_even(id, args_, joined)))
    return claim_whole(id, type, known(result), value.global_shape, joined);
  rules::DeclaredSizes stated = rules::declared_sizes(
      program_, type, result_.shapes[result.index], value.global_shape, program_.rank.value_or(0));
  if (stated.problem)
    report(Place::inst(id), std::move(*stated.problem));
  else if (stated.sizes != result_.sizes[result.index])
    report(Place::inst(id),
           rules::ShapeMismatch{
               "the declared and the actual global shape",
               ir::print_shape(program_, value.global_shape),
               ir::print_shape(program_, rules::global_shape(program_, type, known(result)))});
}

// The same of the dimensions that none of the axes cuts whose pieces are joined by what is stated.
void Walk::claim_whole(InstId id, const Type &type, const rules::Arg &found, ir::ShapeId stated,
                       AxisSet joined) {
  ir::ShapeId follows = rules::global_shape(program_, type, found);
  if (program_.mode != ir::Mode::Global || type.unknown || !follows.valid() ||
      !program_.shapes[stated].ranked)
    return;
  const ir::Shape &actual = program_.shapes[follows];
  ir::Shape claimed = program_.shapes[stated];
  bool lists = !(type.of(ir::Kind::Varying) - type.sharded()).empty();
  for (unsigned d = 0; d < std::min(claimed.dims.size(), actual.dims.size()); ++d) {
    const AxisSet cut = ir::set_of(ir::shards_of(type, d));
    if ((cut & joined) || (!cut && lists))
      claimed.dims[d] = actual.dims[d];
  }
  if (std::optional<rules::Violation> differs =
          rules::shape_differs(program_, "the declared and the actual global shape",
                               program_.shapes.add(std::move(claimed)), follows))
    report(Place::inst(id), std::move(*differs));
}

void Walk::judge_output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  const Type type = program_.types[result_.types[out.value.index]];
  Place place{Place::Form::Output, index};
  Type leaves = type;
  bool told = false;
  if (out.declared.valid()) {
    Type claimed = seen(out.declared, ir::ContextId{0});
    if (claimed.mesh() == type.mesh()) {
      // The claim says how the pieces of what was local join.
      rules::ClaimCheck check =
          rules::check_claim(type, claimed, type.gradient_free(), rules::Spec::Joined);
      AxisSet wrong = check.mismatched | check.unowned;
      told = !wrong.empty();
      if (out.role == ir::OutputRole::Grad)
        wrong -= unreduced(place, out.value, out.of, wrong);
      if (wrong)
        report(place, rules::ClaimMismatch{out.value, result_.types[out.value.index], out.declared,
                                           wrong});
      if (recording_)
        meet(open_.row(out.value), type, 0, check.type, place, [&](AxisId axis, Kind other) {
          return rules::ClaimMismatch{out.value, as_kind(type, axis, other), on_axes(claimed, axis),
                                      axis};
        });
      leaves = check.type;
    }
  }
  state_output(index);
  AxisSet global = leaves.claimed() - local_axes(leaves.mesh(), ir::ContextId{0});
  if (AxisSet loose = (leaves.of(Kind::Varying) - leaves.sharded()) & global)
    report(place, rules::NoSpec{{}, out.value, loose});
  if (out.role == ir::OutputRole::Grad)
    return told ? void() : gradient_output(index, type);
  if (out.role == ir::OutputRole::Loss) {
    for (rules::Violation &violation : rules::loss_violations(program_, out.value, type))
      report(place, std::move(violation));
    if (recording_)
      for (AxisId axis : open_axes(type) & open_.axes(open_.row(out.value)))
        need(open_.row(out.value), axis, Kind::Invariant, place,
             rules::LossKind{out.value, {.kind = Kind::Replicate}, axis});
    return scales_at_root(place, root_type(out.value));
  }
  ir::ScaleId needed =
      out.declared.valid() ? seen(out.declared, ir::ContextId{0}).scale : program_.one();
  if (type.scale == needed)
    return;
  std::string other = ir::print_scale(program_, needed, type.mesh()) + " is needed";
  if (std::optional<rules::Violation> differs =
          rules::scale_differs(program_, type, needed, std::move(other), {}, out.value);
      differs && !told)
    report(place, std::move(*differs));
}

} // namespace spmd::checker
