// Every violation, op row, statement and transition row occurs in some case; what is missing is
// printed as a case to start from.
#include "tests/file_test/coverage.h"

#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include <fmt/format.h>

namespace spmd::tests {
namespace {

std::string row_name(std::string_view name, ir::Kind src, ir::Kind dst) {
  return fmt::format("{} {} -> {}", name, ir::info(src).word, ir::info(dst).word);
}

// The kinds that attribute `src` or `dst` states; several axes may have one each.
std::vector<ir::Kind> stated_kinds(const ir::Program &program, const ir::AttrValue *value) {
  std::vector<ir::Kind> kinds;
  auto add = [&](const ir::AttrValue &item) {
    if (item.form != ir::AttrForm::Kind)
      return;
    ir::WrittenKind word = item.as_kind();
    if (word.form == ir::WrittenKind::Form::Plain)
      kinds.push_back(word.kind);
    else if (word.form == ir::WrittenKind::Form::Shard)
      kinds.push_back(ir::Kind::Varying);
  };
  if (value && value->form == ir::AttrForm::List)
    for (const ir::AttrValue &item : program.lists[value->as<ir::AttrListId>()].items)
      add(item);
  else if (value)
    add(*value);
  return kinds;
}

std::string finding_skeleton(const rules::DiagnosticInfo &info) {
  return fmt::format("// tests/cases/rules/{0}.spmd\n{1}\n// triggers [{0}]", info.name,
                     info.wrong);
}

std::string op_skeleton(const rules::OpDef &op) {
  const rules::Equation &equation = op.equation.equation;
  std::string text = fmt::format("// tests/cases/rules/ops/{}.spmd\n// {}\nmesh m {{ tp = 4 }}\n",
                                 op.name, equation.text);
  std::string operands;
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    std::string_view name = equation.operands[i].name;
    text += fmt::format("%{} = input f32[8, 16] R@tp\n", name);
    operands += fmt::format("{}%{}", i ? ", " : "", name);
  }
  return text + fmt::format("%y = {} {}    // type: R@tp", op.name, operands);
}

std::string statement_skeleton(std::string_view name) {
  return fmt::format("// tests/cases/rules/boundary/{0}.spmd\nmesh m {{ tp = 4 }}\n%x = input "
                     "f32[8, 16] R@tp\n%y = {0} %x    // type: R@tp",
                     name);
}

std::string transition_skeleton(const rules::Transition &row) {
  auto [src, dst] = std::pair(ir::info(row.src).word, ir::info(row.dst).word);
  return fmt::format("// tests/cases/rules/transitions/{0}.spmd\nmesh m {{ tp = 4 }}\n%x = input "
                     "f32[8, 16] {1}@tp\n"
                     "%y = {0} %x {{ axis = tp, src = {1}, dst = {2} }}    // type: {2}@tp",
                     row.name(), src, dst);
}

} // namespace

void Coverage::record(ir::Program &program, const checker::CheckResult &result) {
  for (const checker::Finding &finding : result.findings)
    findings_.emplace(finding.info().name);
  rules::Rules rules(program);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const rules::ResolvedOp &op = rules.resolve(program.insts[ir::InstId{i}].op);
    if (op.row)
      ops_.emplace(op.row->name);
    if (op.boundary != rules::Boundary::None)
      ops_.emplace(rules::boundary_name(op.boundary));
    if (op.form == rules::OpForm::Transition)
      record_transition(program, ir::InstId{i}, rules::name_of(op.transition));
  }
  for (const checker::InferredSrcDst &inferred : result.inferred) {
    const rules::ResolvedOp &op = rules.resolve(program.insts[inferred.inst].op);
    transitions_.insert(
        row_name(rules::name_of(op.transition), inferred.word.src.kind, inferred.word.dst.kind));
  }
}

void Coverage::record_transition(const ir::Program &program, ir::InstId inst,
                                 std::string_view name) {
  ir::AttrsId attrs = program.insts[inst].attrs;
  for (ir::Kind src : stated_kinds(program, program.find(attrs, "src")))
    for (ir::Kind dst : stated_kinds(program, program.find(attrs, "dst")))
      transitions_.insert(row_name(name, src, dst));
}

std::vector<Coverage::Table> Coverage::tables() const {
  std::vector<Table> tables = {
      {"violations", {}}, {"op rows", {}}, {"transition rows", {}}, {"statements", {}}};
  for (const rules::DiagnosticInfo *info : rules::all_violations())
    if (info->drawn_by == rules::ReportedBy::Check && !findings_.count(info->name))
      tables[0].missing.push_back(finding_skeleton(*info));
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &op : family)
      if (!ops_.count(op.name))
        tables[1].missing.push_back(op_skeleton(op));
  for (llvm::ArrayRef<rules::Transition> rows : {rules::transitions(), rules::joint_transitions()})
    for (const rules::Transition &row : rows)
      if (!transitions_.count(row_name(row.name(), row.src, row.dst)))
        tables[2].missing.push_back(transition_skeleton(row));
  for (const ir::BoundaryName &row : ir::kBoundaryNames)
    if (!row.name.empty() && !ops_.count(row.name))
      tables[3].missing.push_back(statement_skeleton(row.name));
  return tables;
}

} // namespace spmd::tests
