// Where LTensor casts, and the casts as instructions.
#include "checker/rewrite/casts.h"

#include "rules/violations/coverage.h"
#include "rules/violations/local.h"

#include "checker/rewrite/inline.h"
#include "checker/walk/state.h"

#include "ir/claims.h"
#include "ir/dialect/dialect.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ValueId;

static AxisSet mixed_axes(const rules::Outcome &outcome) {
  AxisSet axes;
  for (const rules::Violation &violation : outcome.violations)
    if (violation.is<rules::InvariantMixed>())
      axes |= rules::axes_of(violation);
  return axes;
}

// Shards and stated sums are no matter of LTensor's sets: there the finding stands.
static AxisSet union_axes(const WalkState &state, const rules::Application &app,
                          const rules::Outcome &outcome) {
  AxisSet axes = mixed_axes(outcome), varying;
  for (const rules::Arg &arg : state.args) {
    const ir::Type &type = app.type(arg);
    axes -= type.unknown | (type.sharded() & app.global_axes());
    varying |= type.of(Kind::Varying);
  }
  if (const ir::AttrValue *partial = app.attr("partial");
      partial && partial->form == ir::AttrForm::Axes)
    for (const ir::AxisRef &ref : state.program.axis_refs[partial->as<ir::AxisRefsId>()].refs)
      if (std::optional<AxisId> axis = app.mesh().find(ref.axis))
        axes -= app.mesh().pieces_of(*axis);
  return axes & varying;
}

// What each operand is cast on; none where it is not.
static llvm::SmallVector<AxisSet, 8> mark_on(WalkState &state, AxisSet axes) {
  llvm::SmallVector<AxisSet, 8> casts;
  for (rules::Arg &arg : state.args) {
    ir::Type type = state.program.types[arg.type];
    AxisSet cast = axes & type.of(Kind::Invariant);
    cast -= type.either();
    casts.push_back(type.gradient_free() ? AxisSet() : cast);
    if (casts.back().empty())
      continue;
    type.set_kind(casts.back(), Kind::Varying);
    arg.type = state.intern(type);
  }
  return casts;
}

bool cast_implicitly(WalkState &state, InstId id, const rules::Application &app,
                     const rules::Outcome &outcome) {
  AxisSet axes = union_axes(state, app, outcome);
  if (axes.empty())
    return false;
  const Args before = state.args;
  llvm::SmallVector<AxisSet, 8> casts = mark_on(state, axes);
  if (AxisSet bad = mixed_axes(state.rules.apply(app)) & axes) {
    state.args = before;
    casts = mark_on(state, axes - bad);
  }
  bool any = false;
  for (uint32_t i = 0; i < casts.size(); ++i)
    if (casts[i]) {
      state.report(Place::inst(id), rules::ImplicitCast{{i}, casts[i]});
      any = true;
    }
  return any;
}

namespace {

struct WrittenCast {
  uint32_t operand;
  AxisSet axes;
};
using Casts = std::map<uint32_t, llvm::SmallVector<WrittenCast, 2>>; // by instruction

Casts find_casts(ir::Program &program, const CheckOptions &options) {
  Casts casts;
  for (const Finding &finding : check(program, options).findings)
    if (const auto *cast = finding.violation.as<rules::ImplicitCast>())
      casts[finding.place.index].push_back({cast->operand.index, cast->axes});
  return casts;
}

class CastWriter {
public:
  CastWriter(ir::Program &program, const Casts &casts)
      : program_(program), casts_(casts), copier_(program) {}

  void run() {
    replace_each(program_, [&](const ir::Inst &inst, ir::InstId id, std::vector<ir::Inst> &out) {
      ir::Inst made = inst;
      if (auto found = casts_.find(id.index); found != casts_.end())
        for (const WrittenCast &cast : found->second) {
          size_t at = 0;
          made.operands = with(made.operands, cast, inst, at, out);
        }
      out.push_back(made);
    });
  }

private:
  // The operands with one of the tensors among them marked.
  ir::BlockId with(ir::BlockId block, const WrittenCast &cast, const ir::Inst &inst, size_t &at,
                   std::vector<ir::Inst> &out) {
    llvm::SmallVector<ir::Operand, 8> operands(program_.blocks[block].begin(),
                                               program_.blocks[block].end());
    for (ir::Operand &operand : operands) {
      if (operand.form == ir::Operand::Form::List)
        operand.index = with(operand.as_list(), cast, inst, at, out).index;
      else if (operand.is_value() && at++ == cast.operand)
        operand.index = mark(operand.as_value(), cast.axes, inst, out).index;
    }
    return program_.blocks.add(operands);
  }
  ValueId mark(ValueId of, AxisSet axes, const ir::Inst &use, std::vector<ir::Inst> &out) {
    ir::Value value;
    const ir::ValueName name = program_.values[of].name;
    value.name = copier_.fresh_name((name.is_number() ? "v" : "") +
                                    ir::print(name, program_.strings).substr(1));
    const ir::Mesh &mesh = program_.meshes[program_.contexts[use.context].mesh];
    ir::AxisRefs refs;
    for (AxisId axis : axes)
      refs.refs.push_back({{}, mesh[axis].name});
    ir::AttrDict dict;
    dict.attrs.push_back(
        {program_.strings.add("axis"), ir::AttrValue::axes(program_.axis_refs.add(refs))});
    ir::Inst cast = use;
    cast.op = ir::OpNameId{program_.strings.add("mark_varying").index};
    cast.operands = program_.blocks.add({ir::Operand::value(of)});
    cast.attrs = program_.attrs.add(std::move(dict));
    cast.first_result = program_.values.add(value);
    cast.result_count = 1;
    out.push_back(cast);
    return cast.first_result;
  }

  ir::Program &program_;
  const Casts &casts_;
  BodyCopier copier_; // for names
};

} // namespace

bool write_casts(ir::Program &program, const CheckOptions &options) {
  if (ir::dialect_of(program) != ir::Dialect::LTensor)
    return false;
  Casts casts = find_casts(program, options);
  bool inlined = llvm::any_of(casts, [&](const auto &entry) {
    return entry.first < program.main.first.index || entry.first >= program.main.last.index;
  });
  // Each call of a function casts its own operands.
  if (inlined) {
    inline_calls(program);
    casts = find_casts(program, options);
  }
  if (!casts.empty())
    CastWriter(program, casts).run();
  return !casts.empty();
}

} // namespace spmd::checker
