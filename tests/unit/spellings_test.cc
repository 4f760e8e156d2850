// Every spelling means the op that tests/cases/rules/spellings.txt says, with every prefix and in
// every derived form; and the alias tables hold nothing that is not written there.
#include "tests/unit/catch.h"

#include "rules/attributes/attributes.h"
#include "rules/boundary/boundary.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include "ir/boundary_ops.h"

#include <fstream>
#include <map>
#include <sstream>

using namespace spmd;

namespace {

// The op of each spelling, as the file writes it.
using Table = std::map<std::string, std::string>;

Table read_table() {
  std::ifstream file("tests/cases/rules/spellings.txt");
  REQUIRE(file.is_open());
  Table table;
  std::string line, op;
  while (std::getline(file, line)) {
    if (line.empty() || line.front() == '#')
      continue;
    std::istringstream words(line);
    std::string word;
    if (line.front() != ' ') {
      words >> op;
      REQUIRE(op.back() == ':');
      op.pop_back();
      CHECK(table.emplace(op, op).second);
    }
    while (words >> word) {
      INFO(word);
      CHECK(table.emplace(word, op).second);
    }
  }
  return table;
}

// The row, transition or boundary op that a spelling means; empty if none.
std::string meaning(const std::string &spelling, const char *dialect = "spmd") {
  rules::ResolvedOp op = rules::resolve_spelling(spelling, dialect);
  std::string_view name = op.row ? op.row->name
                          : op.form == rules::OpForm::Transition
                              ? rules::name_of(op.transition)
                              : rules::boundary_name(op.boundary);
  return std::string(name);
}

void check_meaning(const std::string &spelling, const std::string &op,
                   const char *dialect = "spmd") {
  std::string found = meaning(spelling, dialect);
  if (found != op) // a check each would be most of the time
    FAIL_CHECK(spelling << " in " << dialect << " means `" << found << "`, not " << op);
}

// Forms that follow by rule, unless the table gives them a meaning of their own.
void check_derived(const Table &table, const std::string &word, const std::string &op) {
  for (const std::string &derived : {word + "_", word + "_copy", "special_" + word, word + "_out"})
    if (!table.count(derived) && word.back() != '_')
      check_meaning("aten." + derived, op);
  check_meaning("aten." + word + ".out", op);
  if (std::string zipped = "_foreach_" + word; !table.count(zipped) && word.back() != '_') {
    check_meaning("aten." + zipped + ".List", op);
    CHECK(rules::resolve_spelling("aten." + zipped, "spmd").each);
  }
}

} // namespace

TEST_CASE("every spelling means its op, whatever stands in front and behind", "[ops]") {
  Table table = read_table();
  size_t count = 0;
  for (const auto &[word, op] : table) {
    ++count;
    llvm::StringRef name(word);
    if (name.consume_front("jax.")) {
      check_meaning(word, op);
      check_meaning("jax.lax." + name.str(), op);
      check_meaning(name.str(), op, "jax");
      continue;
    }
    if (word == op)
      check_meaning(word, op);
    bool is_transition = !rules::find_op(op);
    if (is_transition || table.count("aten." + word))
      continue;
    if (size_t dot = word.find('.'); dot != std::string::npos && !rules::find_op(word) &&
                                     table.count(word.substr(0, dot)) == 0) {
      check_meaning(word, op); // another prefix
      continue;
    }
    check_meaning("aten." + word, op);
    check_meaning("torch.ops.aten." + word, op);
    check_meaning(word, op, "aten");
    if (word.find('.') != std::string::npos)
      continue;
    check_meaning("aten." + word + ".default", op);
    check_derived(table, word, op);
  }
  CHECK(count >= 1100);
}

TEST_CASE("the table of spellings has every row and every alias", "[ops]") {
  Table table = read_table();
  auto listed = [&](const std::string &word, std::string_view op) {
    auto found = table.find(word);
    return found != table.end() && found->second == op;
  };
  for (llvm::ArrayRef<rules::OpDef> family : rules::op_families())
    for (const rules::OpDef &row : family)
      if (!listed(std::string(row.name), row.name))
        FAIL_CHECK("no line for the op " << row.name);
  for (const rules::Alias &alias : rules::aliases()) {
    std::string word(alias.spelling);
    std::string torch = word.substr(0, 5) == "aten." ? word.substr(5) : word;
    if (!listed(word, alias.op) && !listed(torch, alias.op) && !listed("jax." + word, alias.op))
      FAIL_CHECK(word << " is missing at " << alias.op);
  }
}

TEST_CASE("ops that state a type are for readers those whose attributes have one", "[ops]") {
  auto has_type = [](const rules::AttributeList &list) {
    return llvm::any_of(list.specs, [](const rules::AttributeSpec &spec) {
      return spec.form == rules::AttributeForm::Type && spec.first_name() == "type";
    });
  };
  auto check = [&](std::string_view name, const rules::AttributeList &list) {
    INFO(name);
    CHECK(ir::states_type({name.data(), name.size()}) == has_type(list));
  };
  for (const rules::BoundaryOp &row : rules::boundary_ops())
    check(row.name(), rules::attributes_of_boundary(row.op));
  for (const rules::CallOp &row : rules::call_ops())
    check(row.name(), rules::attributes_of_boundary(row.op));
  for (std::string_view name : llvm::ArrayRef(rules::kTransitionNames).drop_front())
    check(name, rules::attributes_of_transition(rules::find_transition_op(name)));
  for (ir::Dialect dialect : {ir::Dialect::Jax, ir::Dialect::DTensor})
    check(ir::redistribute_word(dialect),
          rules::attributes_of_transition(rules::TransitionOp::Redistribute));
}
