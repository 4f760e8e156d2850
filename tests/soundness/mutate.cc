// Slips are edits of one statement of a draft.
#include "tests/soundness/mutate.h"

#include "tests/property/attribute_values.h"
#include "tests/soundness/generator.h"

#include "rules/attributes/attributes.h"
#include "rules/ops/registry.h"
#include "rules/transitions/transition.h"

#include "ir/dialect/print_type.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::soundness {

namespace {

class Mutator {
public:
  Mutator(const Draft &draft, const Checked &checked, Random &random)
      : mutant_{draft, {}, {}, {}, false}, checked_(checked), random_(random) {
    for (const ir::Axis &axis : checked.program.meshes[ir::MeshId{mesh()}].axes)
      axes_.push_back(checked.program.strings[axis.name].str());
  }

  std::optional<Mutant> run(size_t from) {
    struct Slip {
      std::string_view name;
      bool (Mutator::*make)(size_t at);
      bool of_transitions;
    };
    static constexpr Slip kSlips[] = {
        {"drop a transition", &Mutator::drop, true},
        {"drop a transition", &Mutator::drop, true},
        {"do it twice", &Mutator::twice, true},
        {"another axis", &Mutator::axis, true},
        {"another kind", &Mutator::kind, true},
        {"another kind", &Mutator::kind, true},
        {"another dimension", &Mutator::shard, true},
        {"average for sum", &Mutator::average, true},
        {"another root", &Mutator::root, true},
        {"another transition", &Mutator::name, true},
        {"drop an op", &Mutator::drop, false},
        {"drop `partial`", &Mutator::drop_partial, false},
        {"other `partial`", &Mutator::other_partial, false},
        {"another operand", &Mutator::operand, false},
        {"another operand", &Mutator::operand, false},
        {"another dim", &Mutator::dim, false},
        {"drop a scale", &Mutator::drop_scale, false},
        {"insert a collective", &Mutator::insert, false},
        {"another input", &Mutator::input, false},
        {"another claim", &Mutator::claim, false},
        {"another contract", &Mutator::contract, false},
        {"no such attribute", &Mutator::misspelt, false},
        {"no such attribute", &Mutator::misspelt, true},
        {"no such attribute", &Mutator::misspelt_more, false},
        {"no such attribute", &Mutator::misspelt_more, true},
        {"no such value", &Mutator::no_such_value, false},
        {"no such value", &Mutator::no_such_value, true},
        {"no such contract", &Mutator::no_such_contract, false},
        {"no such attribute in a body", &Mutator::misspelt_inside, false},
        {"no such rank", &Mutator::beyond, true},
        {"no such dimension", &Mutator::beyond, false},
    };
    const Slip &slip = random_.of(kSlips);
    llvm::SmallVector<size_t, 32> positions;
    for (size_t i = from; i < mutant_.draft.statements.size(); ++i) {
      const Statement &each = mutant_.draft.statements[i];
      if (slip.name == "another input" || slip.name == "another contract" ||
                  slip.name == "no such contract"
              ? each.declares()
              : !each.declares() && (rules::find_transition_op(each.op) !=
                                     rules::TransitionOp::None) == slip.of_transitions)
        positions.push_back(i);
    }
    for (unsigned tries = 0; tries < 6 && !positions.empty(); ++tries) {
      size_t at = random_.of(positions);
      std::string before = mutant_.draft.statements[at].print();
      Draft kept = mutant_.draft;
      if ((this->*slip.make)(at) && mutant_.draft.print() != kept.print()) {
        mutant_.slip = slip.name;
        mutant_.what = before;
        if (at < mutant_.draft.statements.size())
          mutant_.what += " -> " + mutant_.draft.statements[at].print();
        return std::move(mutant_);
      }
      mutant_.draft = std::move(kept);
      mutant_.means_nothing = false;
    }
    return std::nullopt;
  }

private:
  uint16_t mesh() const { return static_cast<uint16_t>(checked_.program.meshes.size() - 1); }
  Statement &statement(size_t at) { return mutant_.draft.statements[at]; }
  std::string another_axis(std::string_view than) {
    llvm::SmallVector<std::string, 4> others;
    for (const std::string &axis : axes_)
      if (axis != than)
        others.push_back(axis);
    return others.empty() ? std::string() : random_.of(others);
  }
  ir::ShapeId shape(unsigned id) const {
    ir::ValueId value = checked_.ids[id];
    return value.valid() ? checked_.result.shapes[value.index] : ir::ShapeId();
  }
  size_t rank(unsigned id) const {
    return shape(id).valid() ? checked_.program.shapes[shape(id)].dims.size() : 0;
  }
  void replace(unsigned from, unsigned to, size_t after) {
    for (size_t i = after; i < mutant_.draft.statements.size(); ++i)
      for (Operand &operand : statement(i).operands)
        for (unsigned &id : operand.values)
          id = id == from ? to : id;
  }

  bool drop(size_t at) {
    Statement gone = statement(at);
    if (gone.results.size() != 1 || gone.operands.empty() || gone.operands[0].values.empty())
      return false;
    unsigned from = gone.operands[0].values[0];
    // An op goes only where its result differs from its operand by nothing but its value.
    if (rules::find_transition_op(gone.op) == rules::TransitionOp::None &&
        !(shape(from) == shape(gone.results[0])))
      return false;
    mutant_.draft.statements.erase(mutant_.draft.statements.begin() + static_cast<ptrdiff_t>(at));
    replace(gone.results[0], from, at);
    return true;
  }
  bool twice(size_t at) {
    Statement again = statement(at);
    if (again.results.size() != 1 || again.operands[0].values.size() != 1)
      return false;
    unsigned made = again.results[0];
    again.operands[0].values[0] = made;
    again.results[0] = mutant_.draft.fresh();
    mutant_.stands_for = {again.results[0], made};
    replace(made, again.results[0], at + 1);
    mutant_.draft.statements.insert(
        mutant_.draft.statements.begin() + static_cast<ptrdiff_t>(at) + 1, again);
    return true;
  }
  bool axis(size_t at) {
    const std::string *now = statement(at).attr("axis");
    std::string other = now ? another_axis(*now) : std::string();
    if (other.empty())
      return false;
    statement(at).set("axis", other);
    return true;
  }
  // Of a redistribution to a type, a kind of that; a list of words has an order of its own.
  bool kind(size_t at) {
    if (const std::string *to = statement(at).attr("to")) {
      std::string type = *to;
      bool altered = alter_kind(type);
      statement(at).set("to", type);
      return altered;
    }
    if (!has_words(at))
      return false;
    static constexpr const char *kWords[] = {"R", "I", "P", "Reduced", "V", "S(0)", "S(1)"};
    statement(at).set(random_.chance(70) ? "dst" : "src", random_.of(kWords));
    return true;
  }
  bool shard(size_t at) {
    std::string_view key = random_.chance(50) ? "src" : "dst";
    const std::string *now = statement(at).attr(key);
    if (!now || (*now)[0] != 'S')
      return false;
    statement(at).set(key, fmt::format("S({})", random_.below(3)));
    return true;
  }
  bool average(size_t at) {
    if (!has_words(at) || *statement(at).attr("src") != "P")
      return false;
    statement(at).set("op", statement(at).attr("op") ? "" : "avg");
    return true;
  }
  bool root(size_t at) {
    if (!statement(at).attr("root"))
      return false;
    statement(at).set("root", std::to_string(random_.below(2)));
    return true;
  }
  bool name(size_t at) {
    static constexpr const char *kNames[] = {"convert", "reinterpret", "all_reduce", "all_gather",
                                             "reduce_scatter"};
    if (!has_words(at))
      return false;
    statement(at).op = random_.of(kNames);
    statement(at).set("expert", "");
    return true;
  }
  bool drop_partial(size_t at) {
    if (!statement(at).attr("partial"))
      return false;
    statement(at).set("partial", "");
    return true;
  }
  bool other_partial(size_t at) {
    if (statement(at).op == "backward" || statement(at).op == "grad" ||
        statement(at).op == "scale" || statement(at).op == "assert_type" ||
        statement(at).op == "zeros_like") // a zero is a sum of zeros
      return false;
    statement(at).set("partial", random_.of(axes_));
    return true;
  }
  // One of the same shape: what a slip of the pen leaves to the types.
  bool operand(size_t at) {
    llvm::SmallVector<unsigned *, 4> uses;
    for (Operand &operand : statement(at).operands)
      for (unsigned &id : operand.values)
        uses.push_back(&id);
    if (uses.empty())
      return false;
    unsigned &use = *random_.of(uses);
    llvm::SmallVector<unsigned, 8> others;
    for (size_t i = 0; i < at; ++i)
      for (unsigned id : statement(i).results)
        if (id != use && shape(id).valid() && shape(id) == shape(use))
          others.push_back(id);
    if (others.empty())
      return false;
    use = random_.of(others);
    return true;
  }
  bool dim(size_t at) {
    const std::string *now = statement(at).attr("dim");
    if (!now || statement(at).operands[0].values.empty())
      return false;
    size_t dims = rank(statement(at).operands[0].values[0]);
    if (!dims)
      return false;
    unsigned other = random_.below(dims);
    statement(at).set("dim", (*now)[0] == '[' ? fmt::format("[{}]", other) : std::to_string(other));
    return true;
  }
  bool drop_scale(size_t at) { return statement(at).op == "scale" && drop(at); }
  bool insert(size_t at) {
    if (statement(at).results.empty())
      return false;
    unsigned made = statement(at).results[0];
    Statement more;
    more.op = "all_reduce";
    more.region = statement(at).region;
    more.results = {mutant_.draft.fresh()};
    more.operands = {Operand::value(made)};
    more.attrs = {
        {"axis", random_.of(axes_)}, {"src", "P"}, {"dst", random_.chance(50) ? "R" : "I"}};
    mutant_.stands_for = {more.results[0], made};
    replace(made, more.results[0], at + 1);
    mutant_.draft.statements.insert(
        mutant_.draft.statements.begin() + static_cast<ptrdiff_t>(at) + 1, more);
    return true;
  }
  bool has_words(size_t at) {
    const std::string *src = statement(at).attr("src");
    return src && (*src)[0] != '[';
  }
  // What is reduced outside of the program: over another axis, as an average, not at all.
  bool contract(size_t at) {
    std::string &text = statement(at).contract;
    if (text.empty())
      return false;
    if (random_.chance(30))
      return text.clear(), true;
    bool other = random_.chance(50);
    std::string from = other ? random_.of(axes_) : random_.chance(50) ? "avg" : "sum";
    std::string to = other ? another_axis(from) : from == "avg" ? "sum" : "avg";
    size_t place = text.find(" " + from + " ");
    if (place == std::string::npos || to.empty() || text.find(" " + to + " =") != std::string::npos)
      return false;
    text.replace(place + 1, from.size(), to);
    return true;
  }
  // A typing error in a name: two letters are exchanged.
  bool swap_letters(std::string &name) {
    size_t place = name.size() < 3 ? 0 : random_.below(name.size() - 1);
    if (name.size() < 3 || name[place] == name[place + 1])
      return false;
    std::swap(name[place], name[place + 1]);
    return mutant_.means_nothing = true;
  }
  bool misspelt(size_t at) {
    if (statement(at).attrs.empty())
      return false;
    std::string &key = random_.of(statement(at).attrs).first;
    return key != "phase" && key != "bwd_of" && swap_letters(key);
  }
  // What the row of the statement knows, whether it is stated there or not.
  llvm::SmallVector<rules::AttributeSpec, 8> known(size_t at) {
    rules::ResolvedOp op = rules::resolve_spelling(statement(at).op, "spmd");
    const rules::ResolvedOp &means = op.forward ? *op.forward : op;
    rules::AttributeList list;
    if (op.form == rules::OpForm::Equation)
      list = rules::attributes_of(*means.row, means.alias);
    else if (op.form == rules::OpForm::Transition)
      list = rules::attributes_of_transition(op.transition);
    else
      list = rules::attributes_of_boundary(op.boundary);
    list.specs.push_back({"vjp", rules::AttributeForm::NoVjp});
    return list.specs;
  }
  bool misspelt_more(size_t at) {
    std::string name(random_.of(known(at)).first_name());
    if (!statement(at).block.empty() || !swap_letters(name))
      return false;
    statement(at).set(name, random_.chance(50) ? "1" : "true");
    return true;
  }
  bool no_such_value(size_t at) {
    rules::AttributeSpec spec = random_.of(known(at));
    int64_t ranks = 1;
    for (const ir::Axis &axis : checked_.program.meshes[ir::MeshId{mesh()}].axes)
      ranks *= axis.size();
    std::vector<std::string> wrong = property::attribute_values(spec.form, 0, ranks).wrong;
    if (!statement(at).block.empty() || wrong.empty())
      return false;
    statement(at).set(std::string(spec.first_name()), random_.of(wrong));
    return mutant_.means_nothing = true;
  }
  // A key that no declaration has, in a contract or as the only one.
  bool no_such_contract(size_t at) {
    static constexpr const char *kKeys[] = {"grad", "sync", "step", "hints", "requires_grad"};
    std::string key = random_.of(kKeys), &text = statement(at).contract;
    size_t place = text.find(key + " =");
    std::string wrong = key;
    if (!swap_letters(wrong))
      return false;
    if (place != std::string::npos)
      text.replace(place, key.size(), wrong);
    else
      text = text.empty() ? " { " + wrong + " = 1 }"
                          : text.substr(0, text.rfind('}')) + ", " + wrong + " = 1 }";
    return true;
  }
  // The first function that the statement calls; of others nothing is checked.
  std::string &called(size_t at) {
    for (const auto &[key, value] : statement(at).attrs)
      for (std::string &function : mutant_.draft.functions)
        if (value[0] == '@' && function.compare(0, value.size() + 6, "func " + value + "(") == 0)
          return function;
    return statement(at).block;
  }
  // In a region or a function.
  bool misspelt_inside(size_t at) {
    std::string &text = statement(at).block.empty() ? called(at) : statement(at).block;
    llvm::SmallVector<std::pair<size_t, size_t>, 16> keys; // where they begin and end
    for (size_t end = text.find(" = "); end != std::string::npos; end = text.find(" = ", end + 1)) {
      size_t begin = text.find_last_of(" {,%", end - 1) + 1;
      if (begin > 1 &&
          (text.compare(begin - 2, 2, "{ ") == 0 || text.compare(begin - 2, 2, ", ") == 0))
        keys.push_back({begin, end});
    }
    if (keys.empty())
      return false;
    auto [begin, end] = random_.of(keys);
    std::string key = text.substr(begin, end - begin), wrong = key;
    if (key == "phase" || key == "bwd_of" || !swap_letters(wrong))
      return false;
    text.replace(begin, key.size(), wrong);
    return true;
  }
  // A dimension, a root or a rank that there is none of; a rank that is sent to twice.
  bool beyond(size_t at) {
    Statement &made = statement(at);
    mutant_.means_nothing = true;
    if (made.attr("perm")) {
      static constexpr const char *kPerms[] = {"[[0, 9]]",  "[[0, 1], [0, 0]]", "[[0, 1], [1, 1]]",
                                               "[[-1, 0]]", "[[0, 1, 1]]",      "0"};
      made.set("perm", random_.of(kPerms));
      return true;
    }
    if (made.attr("root")) {
      made.set("root", random_.chance(50) ? "9" : "-9");
      return true;
    }
    for (const char *key : {"dim", "split_dim", "concat_dim", "dim0", "dims"})
      if (const std::string *now = made.attr(key)) {
        const char *far = random_.chance(50) ? "7" : "-7";
        made.set(key, (*now)[0] == '[' ? fmt::format("[{}]", far) : far);
        return true;
      }
    for (const char *key : {"src", "dst"})
      if (const std::string *now = made.attr(key); now && (*now)[0] == 'S') {
        made.set(key, "S(7)");
        return true;
      }
    return false;
  }
  bool claim(size_t at) {
    Statement &made = statement(at);
    if (!made.claims.empty() && random_.chance(50))
      return alter_kind(random_.of(made.claims));
    if (!made.results.empty() && random_.chance(70))
      return misstate(made);
    return made.op == "assert_type" && [&] {
      static constexpr const char *kWords[] = {"R", "I", "P", "Reduced", "V", "S(0)", "S(1)"};
      made.set("dst", random_.of(kWords));
      return true;
    }();
  }
  // A result is stated to be what it is but for an extent, the extents of all ranks, or its scale.
  // Extents of all ranks may say of a list that it is cut.
  bool misstate(Statement &made) {
    size_t r = random_.below(made.results.size());
    std::string stated =
        r < made.claims.size() && !made.claims[r].empty() ? made.claims[r] : said(made.results[r]);
    size_t open = stated.find('['), close = stated.find(']');
    if (close == std::string::npos)
      return false;
    made.claims.resize(made.results.size());
    mutant_.means_nothing = true;
    bool silent = !llvm::StringRef(mutant_.draft.head).contains("mode = local") &&
                  stated.find(" scale ") == std::string::npos &&
                  stated.find("R|I") == std::string::npos; // a zero is of every scale
    if (std::string axis = random_.of(axes_);
        made.block.empty() && silent && axis != "one" && random_.chance(30))
      return made.claims[r] = stated + " scale " + axis, true;
    bool together = stated.compare(close + 1, 5, " of [") == 0 && random_.chance(50);
    if (together && stated.find(" V@") != std::string::npos)
      return false;
    size_t digit = stated.find_first_of("0123456789", together ? close : open);
    if (digit == std::string::npos || (!together && digit > close))
      return false;
    stated[digit] = stated[digit] == '9' ? '8' : static_cast<char>(stated[digit] + 1);
    made.claims[r] = std::move(stated);
    return true;
  }
  // A value's type in words.
  std::string said(unsigned id) const {
    ir::ValueId value = checked_.ids[id];
    if (!shape(id).valid() || !checked_.program.shapes[shape(id)].ranked)
      return {};
    const ir::Type &type = checked_.program.types[checked_.result.types[value.index]];
    std::string text = ir::print_type(checked_.program, type, shape(id));
    World world(checked_.program);
    Placement place(
        checked_.program, world,
        {checked_.result.types[value.index], shape(id), checked_.result.sizes[value.index]});
    if (checked_.result.sizes[value.index].valid() && place.known())
      text.insert(text.find(']') + 1, " of " + list_of(place.whole(0)));
    return text;
  }
  bool input(size_t at) { return alter_kind(statement(at).type); }
  bool alter_kind(std::string &type) {
    static constexpr const char *kFrom[] = {" R@", " I@", " P@", " Reduced@"};
    llvm::SmallVector<std::pair<size_t, size_t>, 4> kinds; // place, length
    for (const char *word : kFrom)
      for (size_t i = type.find(word); i != std::string::npos; i = type.find(word, i + 1))
        kinds.push_back({i, std::string_view(word).size()});
    if (kinds.empty())
      return false;
    auto [place, length] = random_.of(kinds);
    type.replace(place, length, random_.of(kFrom));
    return true;
  }

  Mutant mutant_;
  const Checked &checked_;
  Random &random_;
  std::vector<std::string> axes_;
};

} // namespace

std::optional<Mutant> mutate(const Draft &draft, const Checked &checked, Random &random,
                             size_t from) {
  return Mutator(draft, checked, random).run(from);
}

std::optional<Draft> forced(const Mutant &mutant, const Checked &original) {
  Draft made = mutant.draft;
  for (Statement &statement : made.statements) {
    if (statement.declares())
      continue;
    if (!statement.block.empty()) // lines in it have no claims
      return std::nullopt;
    statement.claims.clear();
    for (unsigned id : statement.results) {
      if (mutant.stands_for && mutant.stands_for->first == id)
        id = mutant.stands_for->second;
      ir::ValueId value = id < original.ids.size() ? original.ids[id] : ir::ValueId();
      const checker::CheckResult &result = original.result;
      // How uneven blocks are cut is not known from a claim.
      if (!value.valid() || result.sizes[value.index].valid() ||
          !result.shapes[value.index].valid())
        return std::nullopt;
      statement.claims.push_back(ir::print_type(original.program,
                                                original.program.types[result.types[value.index]],
                                                result.shapes[value.index]));
    }
    statement.unchecked = statement.op != "backward" && statement.op != "grad";
  }
  return made;
}

} // namespace spmd::soundness
