// LTensor's casts as instructions.
#include "checker/rewrite/casts.h"

#include "rules/violations/coverage.h"

#include "checker/rewrite/inline.h"

#include "ir/claims.h"
#include "ir/dialect/dialect.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace spmd::checker {

using ir::AxisId;
using ir::AxisSet;
using ir::InstId;
using ir::ValueId;

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
  ir::OperandsId with(ir::OperandsId block, const WrittenCast &cast, const ir::Inst &inst,
                      size_t &at, std::vector<ir::Inst> &out) {
    llvm::SmallVector<ir::Operand, 8> operands(program_.operand_lists[block].begin(),
                                               program_.operand_lists[block].end());
    for (ir::Operand &operand : operands) {
      if (operand.form == ir::Operand::Form::List)
        operand.index = with(operand.as_list(), cast, inst, at, out).index;
      else if (operand.is_value() && at++ == cast.operand)
        operand.index = mark(operand.as_value(), cast.axes, inst, out).index;
    }
    return program_.operand_lists.add(operands);
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
    cast.operands = program_.operand_lists.add({ir::Operand::value(of)});
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
