// `spmdlint ops`: the op table with its equations and spellings, and the pages of ops and
// transitions.
#include "checker/cli/commands/manual.h"
#include "checker/cli/options.h"
#include "checker/cli/output.h"
#include "checker/render/json_text.h"
#include "ir/support/arrays.h"
#include "ir/support/format.h"

#include "rules/attributes/attributes.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace spmd::checker {
namespace {

using Json = nlohmann::ordered_json;

llvm::SmallVector<const rules::OpDef *, 0> all_ops() {
  llvm::SmallVector<const rules::OpDef *, 0> rows;
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family)
      rows.push_back(&row);
  return rows;
}

// The row that a name of ours or a spelling of a framework means; null if there is none.
const rules::OpDef *find_row(llvm::StringRef name) {
  if (const rules::OpDef *row = rules::find_op(name))
    return row;
  return rules::resolve_spelling(name, ir::kOwnDialect).row;
}

std::string joined(llvm::ArrayRef<llvm::StringRef> words, std::string_view before = "",
                   std::string_view after = "") {
  std::string text;
  for (llvm::StringRef word : words)
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ", ", before, word, after);
  return text;
}

constexpr std::string_view kDefaultDims[] = {"the last", "all", "the first", "the second",
                                             "the last two"};

// What the columns beside the equation say, a line each.
llvm::SmallVector<std::string, 4> remarks(const rules::OpDef &row) {
  llvm::SmallVector<std::string, 4> lines;
  if (!row.placed.empty())
    lines.push_back(fmt::format("attribute dim places {} (default: {})", row.placed,
                                kDefaultDims[static_cast<unsigned>(row.default_dim)]));
  if (!row.spans.empty())
    lines.push_back(
        fmt::format("{} spans the dimensions of attribute normalized_shape", row.spans));
  if (row.factors)
    lines.push_back("dimensions follow from attributes");
  if (row.reduces)
    lines.push_back(
        "attribute reduction: mean, as written, sum or none; none where it is not stated, "
        "and what the framework takes for its own spellings");
  if (!row.mut.empty())
    lines.push_back(fmt::format("in place: writes {}", row.mut));
  if (!row.gradient)
    lines.push_back("no gradient passes");
  if (row.each)
    lines.push_back("a list operand gives a result for each of its members");
  if (!row.note.empty())
    lines.push_back(std::string(row.note));
  return lines;
}

llvm::SmallVector<llvm::StringRef, 6> names_of(const rules::AttributeSpec &spec) {
  llvm::SmallVector<llvm::StringRef, 6> names;
  llvm::StringRef(spec.names.data(), spec.names.size()).split(names, '|');
  return names;
}

// A line each; other names that frameworks have for one stand beside it.
std::string attribute_lines(const rules::AttributeList &list) {
  std::string text;
  for (const rules::AttributeSpec &spec : list.specs) {
    llvm::SmallVector<llvm::StringRef, 6> names = names_of(spec);
    std::string others = joined(ir::as_array(names).drop_front());
    text += fmt::format("  attribute {}{}: {}\n", names.front(),
                        others.empty() ? "" : " (or " + others + ")", rules::describe(spec.form));
  }
  return text;
}

std::string op_text(const rules::OpDef &row) {
  std::string text = fmt::format("{}: {}\n", row.name, row.equation.equation.text);
  for (const std::string &line : remarks(row))
    text += fmt::format("  {}\n", line);
  text += attribute_lines(rules::attributes_of(row, nullptr));
  if (std::string spellings = joined(rules::spellings_of(row.name)); !spellings.empty())
    text += fmt::format("  also: {}\n", spellings);
  return text;
}

// A bar would end a cell of the table.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text)
    out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

std::string ops_markdown(llvm::ArrayRef<const rules::OpDef *> rows) {
  std::string text = "| op | equation | spellings | remarks |\n|---|---|---|---|\n";
  for (const rules::OpDef *row : rows) {
    std::string notes;
    for (const std::string &line : remarks(*row))
      notes += (notes.empty() ? "" : "; ") + line;
    text += fmt::format("| `{}` | `{}` | {} | {} |\n", row->name, cell(row->equation.equation.text),
                        joined(rules::spellings_of(row->name), "`", "`"), cell(notes));
  }
  return text;
}

std::string ops_json(llvm::ArrayRef<const rules::OpDef *> rows) {
  Json document = Json::array();
  for (const rules::OpDef *row : rows) {
    Json spellings = Json::array(), notes = Json::array();
    for (llvm::StringRef spelling : rules::spellings_of(row->name))
      spellings.push_back(spelling.str());
    for (const std::string &line : remarks(*row))
      notes.push_back(line);
    Json attributes = Json::array();
    for (const rules::AttributeSpec &spec : rules::attributes_of(*row, nullptr).specs) {
      Json names = Json::array();
      for (llvm::StringRef name : names_of(spec))
        names.push_back(name.str());
      attributes.push_back({{"names", std::move(names)}, {"value", rules::describe(spec.form)}});
    }
    document.push_back({{"name", row->name},
                        {"equation", row->equation.equation.text},
                        {"attributes", std::move(attributes)},
                        {"spellings", std::move(spellings)},
                        {"remarks", std::move(notes)}});
  }
  return print_json(document, 1) + '\n';
}

std::string ops_text(llvm::ArrayRef<const rules::OpDef *> rows) {
  std::string text;
  for (const rules::OpDef *row : rows)
    text += fmt::format("{:<28} {}\n", row->name, row->equation.equation.text);
  return text;
}

constexpr std::string_view kLocalStepTexts[] = {
    "", "keeps its own slice", "keeps the data on the first rank, zeros elsewhere",
    "keeps the data on the root, zeros elsewhere", "puts its own block into zeros"};

std::string_view word(ir::Kind kind) { return ir::info(kind).word; }

// V stands for a stack of the parts or for a sharded dimension.
std::string side(ir::Kind kind, rules::Layouts layouts) {
  bool shard = kind == ir::Kind::Varying && layouts == rules::Layouts::StackOrShard;
  return std::string(word(kind)) + (shard ? " or S(i)" : "");
}

std::string transition_row(const rules::Transition &row) {
  std::string text = fmt::format(
      "  {} -> {}: communicates {}", side(row.src, row.layouts), side(row.dst, row.layouts),
      row.collective == rules::Collective::None
          ? "nothing"
          : rules::kCollectiveWords[static_cast<unsigned>(row.collective)]);
  if (row.local_step != rules::LocalStep::None)
    text += fmt::format(", each rank {}", kLocalStepTexts[static_cast<unsigned>(row.local_step)]);
  if (!row.composed)
    text += fmt::format("; backward {}({}, {})", row.dual.name(), word(row.dual.src),
                        word(row.dual.dst));
  if (row.composed)
    text += "; by way of R";
  if (row.expert)
    text += "; needs expert = true";
  return text + '\n';
}

} // namespace

std::string op_page(llvm::StringRef name) {
  const rules::OpDef *row = find_row(name);
  return row ? op_text(*row) : "";
}

Names op_names() {
  Names names;
  for (const rules::OpDef *row : all_ops())
    names.push_back(row->name);
  return names;
}

std::string transition_page(llvm::StringRef name) {
  rules::TransitionOp transition = rules::find_transition_op(name);
  if (transition == rules::TransitionOp::None)
    transition = rules::resolve_spelling(name, ir::kOwnDialect).transition;
  if (transition == rules::TransitionOp::None)
    return "";
  std::string text = fmt::format("{}, per axis:\n", rules::name_of(transition));
  for (llvm::ArrayRef<rules::Transition> rows : {rules::transitions(), rules::joint_transitions()})
    for (const rules::Transition &row : rows)
      if (rules::find_transition(transition, row.src, row.dst) == &row)
        text += transition_row(row);
  return text + attribute_lines(rules::attributes_of_transition(transition));
}

// Redistribute has a page of its own, and no rows.
Names transition_names() {
  Names names;
  for (std::string_view name : ir::as_array(rules::kTransitionNames).drop_front())
    if (name != rules::name_of(rules::TransitionOp::Redistribute))
      names.push_back(name);
  return names;
}

ExitCode run_ops(const Options &options) {
  llvm::SmallVector<const rules::OpDef *, 0> rows = all_ops();
  if (!options.arguments.empty()) {
    rows = {find_row(options.arguments.front())};
    std::string statement(rules::boundary_name(
        rules::resolve_spelling(options.arguments.front(), ir::kOwnDialect).boundary));
    if (std::string page = transition_page(options.arguments.front()) + statement_page(statement);
        !rows.front() && !page.empty() && options.table == TableFormat::Text)
      return print_text(page);
    if (!rows.front()) {
      say(fmt::format("no op `{}`{}", options.arguments.front(),
                      nearest_hint(options.arguments.front(), op_names())));
      return ExitCode::Call;
    }
  }
  std::string text = options.table == TableFormat::Markdown ? ops_markdown(rows)
                     : options.table == TableFormat::Json   ? ops_json(rows)
                     : options.arguments.empty()            ? ops_text(rows)
                                                            : op_text(*rows.front());
  return print_text(text);
}

} // namespace spmd::checker
