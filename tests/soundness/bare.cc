// What a program says of itself is taken out of it, and what one device computes stays the measure:
// the program with its words is run, the one without is checked.
#include "tests/soundness/bare.h"

#include "ir/support/strings.h"
#include "tests/soundness/generator.h"
#include "tests/soundness/judge.h"

#include "checker/check.h"
#include "ir/dialect/print_type.h"
#include "rules/transitions/transition.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <fmt/format.h>

#include <set>

namespace spmd::soundness {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

namespace {

// `S(1)`: 1.
std::optional<unsigned> cut_of(const std::string *word) {
  unsigned dim = 0;
  llvm::StringRef text = word ? llvm::StringRef(*word) : llvm::StringRef();
  if (!text.consume_front("S(") || !text.consume_back(")") || text.getAsInteger(10, dim))
    return std::nullopt;
  return dim;
}

bool is_one_of(const std::string *word, std::initializer_list<std::string_view> words) {
  return word && llvm::is_contained(words, std::string_view(*word));
}

// How a statement stands in a recording.
enum class Recorded : uint8_t { As, Nothing, Never };

// A collective, by dimensions in the place of words.
Recorded strip_collective(Statement &statement) {
  std::string axis = statement.attr("axis") ? *statement.attr("axis") : std::string();
  std::optional<unsigned> from = cut_of(statement.attr("src")), to = cut_of(statement.attr("dst"));
  std::vector<std::pair<std::string, std::string>> attrs = {{"axis", axis}};
  if (axis.empty())
    return Recorded::Never;
  if (statement.op == "convert") {
    bool whole = is_one_of(statement.attr("src"), {"R", "I", "Reduced"});
    if (whole && is_one_of(statement.attr("dst"), {"R", "I", "Reduced"}))
      return Recorded::Nothing;
    if (!whole || !to)
      return Recorded::Never;
    attrs.emplace_back("dst", *statement.attr("dst"));
  } else if (statement.op == "all_reduce") {
    if (!is_one_of(statement.attr("src"), {"P"}))
      return Recorded::Never;
    attrs.emplace_back("op", statement.attr("op") ? *statement.attr("op") : "sum");
  } else if (statement.op == "all_gather" && from) {
    attrs.emplace_back("dim", std::to_string(*from));
  } else if (statement.op == "reduce_scatter" && to) {
    attrs.emplace_back("dim", std::to_string(*to));
    attrs.emplace_back("op", statement.attr("op") ? *statement.attr("op") : "sum");
  } else if (statement.op == "all_to_all" && from && to) {
    attrs.emplace_back("split_dim", std::to_string(*to));
    attrs.emplace_back("concat_dim", std::to_string(*from));
  } else {
    return Recorded::Never;
  }
  statement.attrs = std::move(attrs);
  return Recorded::As;
}

Recorded strip(Statement &statement) {
  statement.claims.clear();
  statement.gradient_of.clear();
  statement.contract.clear();
  if (llvm::StringRef name = statement.op; name.consume_front("spmd."))
    statement.op = name.str();
  if (statement.declares()) {
    if (llvm::StringRef(statement.type).contains(" V") ||
        llvm::StringRef(statement.type).contains(" of ["))
      return Recorded::Never;
    for (std::string_view word : {" I@", " Reduced@", " R|I@"}) // nobody says who has its gradient
      for (size_t at; (at = statement.type.find(word)) != std::string::npos;)
        statement.type.replace(at, word.size(), " R@");
    return Recorded::As;
  }
  static constexpr llvm::StringRef kWords[] = {"backward", "grad",   "step",        "store",
                                               "report",   "rng",    "fork",        "dropout",
                                               "to_local", "output", "assert_type", "from_local"};
  // In a region there are lists, of which one device has no counterpart.
  bool calls = !statement.block.empty() || !statement.region.empty() ||
               llvm::any_of(statement.attrs, [](const auto &attr) {
                 return ir::starts_with(llvm::StringRef(attr.second), "@");
               });
  if (calls || llvm::is_contained(kWords, statement.op))
    return Recorded::Never;
  if (rules::find_transition_op(statement.op) != rules::TransitionOp::None)
    return statement.op == "scale" ? Recorded::As : strip_collective(statement);
  for (const char *word : {"partial", "vjp", "bwd_of"})
    statement.set(word, "");
  return Recorded::As;
}

// A batch that differs is taken to be cut in its first dimension.
void forget_cut(Statement &statement) {
  llvm::StringRef type = statement.type;
  auto [head, kinds] = type.split(']');
  auto [dtype, dims] = head.split('[');
  auto [first, others] = dims.split(',');
  auto [extent, axis] = first.split('@');
  int64_t count = 0;
  if (axis.empty() || axis.contains('(') || others.contains('@') ||
      extent.getAsInteger(10, count) || count < 2)
    return;
  statement.type =
      fmt::format("{}[{}{}{}]{} V@{}", std::string_view(dtype), std::string_view(extent),
                  others.empty() ? "" : ",", std::string_view(others), std::string_view(kinds),
                  std::string_view(axis));
}

// The values of a draft that a recording can have, and which statements they need.
class Recording {
public:
  explicit Recording(const Draft &draft) : draft_(draft) {
    for (const Statement &statement : draft.statements) {
      Statement bare = statement;
      Recorded how = statement.op == "output" ? Recorded::Never : strip(bare);
      bool known = how != Recorded::Never;
      for (unsigned id : read(statement))
        known &= known_.count(id) > 0;
      for (unsigned id : statement.results)
        if (known)
          known_.insert(id);
      bare_.push_back(std::move(bare));
      how_.push_back(known ? how : Recorded::Never);
    }
  }

  bool has(unsigned value) const { return known_.count(value) > 0; }

  // The statements that these values need, with their words.
  Draft needed_by(llvm::ArrayRef<unsigned> wanted) const {
    Draft made = draft_;
    made.functions.clear();
    made.statements.clear();
    std::vector<bool> kept = needed(wanted);
    for (size_t i = 0; i < kept.size(); ++i)
      if (kept[i])
        made.statements.push_back(draft_.statements[i]);
    return made;
  }
  // Without them.
  Draft bare(llvm::ArrayRef<unsigned> wanted) const {
    Draft made = draft_;
    made.functions.clear();
    made.statements.clear();
    std::map<unsigned, unsigned> stands_for;
    std::vector<bool> kept = needed(wanted);
    for (size_t i = 0; i < bare_.size(); ++i) {
      if (!kept[i])
        continue;
      Statement statement = bare_[i];
      for (Operand &operand : statement.operands)
        for (unsigned &id : operand.values)
          if (auto at = stands_for.find(id); at != stands_for.end())
            id = at->second;
      if (how_[i] == Recorded::Nothing)
        stands_for[statement.results[0]] = statement.operands[0].values[0];
      else
        made.statements.push_back(std::move(statement));
    }
    return made;
  }

private:
  std::vector<bool> needed(llvm::ArrayRef<unsigned> wanted) const {
    std::set<unsigned> values(wanted.begin(), wanted.end());
    std::vector<bool> kept(bare_.size());
    for (size_t i = bare_.size(); i-- > 0;) {
      kept[i] = llvm::any_of(bare_[i].results, [&](unsigned id) { return values.count(id) > 0; });
      for (unsigned id : kept[i] ? read(bare_[i]) : llvm::SmallVector<unsigned, 4>())
        values.insert(id);
    }
    return kept;
  }
  static llvm::SmallVector<unsigned, 4> read(const Statement &statement) {
    llvm::SmallVector<unsigned, 4> values;
    for (const Operand &operand : statement.operands)
      values.append(operand.values.begin(), operand.values.end());
    return values;
  }

  const Draft &draft_;
  std::vector<Statement> bare_;
  std::vector<Recorded> how_;
  std::set<unsigned> known_;
};

// Adds up what is pending, and has a parameter take it.
class Asking {
public:
  Asking(Asked &asked, const Checked &checked) : asked_(asked), checked_(checked) {}

  void about(unsigned value) {
    ValueId id = checked_.ids[value];
    if (!id.valid() || !checked_.result.types[id.index].valid() ||
        checked_.result.sizes[id.index].valid() || !checked_.result.shapes[id.index].valid())
      return;
    ir::Program &program = const_cast<ir::Program &>(checked_.program);
    ir::Type type = program.types[checked_.result.types[id.index]];
    const ir::Mesh &mesh = program.meshes[type.mesh()];
    AxisSet pending = type.of(Kind::Partial), lists = type.of(Kind::Varying) - type.sharded();
    if (!lists.empty() || !type.unknown.empty() || type.combining() || type.either() ||
        !(type.scale == program.one()) || !type.of(Kind::Reduced).empty() ||
        !ir::differentiable(program.shapes[checked_.result.shapes[id.index]].dtype))
      return;
    for (ir::AxisId axis : pending &mesh.typed_axes()) {
      Statement sum;
      sum.op = "all_reduce";
      sum.results = {asked_.draft.fresh()};
      sum.operands = {Operand::value(value)};
      sum.attrs = {{"axis", program.strings[mesh[axis].name].str()}, {"src", "P"}, {"dst", "R"}};
      value = sum.results[0];
      asked_.draft.statements.push_back(std::move(sum));
    }
    type.of(Kind::Partial) -= pending;
    type.of(Kind::Replicate) |= pending;
    subtract(value, ir::print_type(program, type, checked_.result.shapes[id.index]));
  }

private:
  void subtract(unsigned value, std::string type) {
    Statement param, less;
    param.role = "param";
    param.type = std::move(type);
    param.results = {asked_.draft.fresh()};
    less.op = "sub";
    less.results = {asked_.draft.fresh()};
    less.operands = {Operand::value(param.results[0]), Operand::value(value)};
    asked_.states.push_back({param.results[0], less.results[0]});
    auto &statements = asked_.draft.statements;
    statements.insert(statements.begin(), std::move(param));
    statements.push_back(std::move(less));
  }

  Asked &asked_;
  const Checked &checked_;
};

std::unique_ptr<Checked> check_bare(const Asked &bare) {
  Draft draft = bare.draft;
  for (const Asked::State &state : bare.states) {
    Statement output;
    output.op = "output";
    output.operands = {Operand::literal(fmt::format("state %{} of %{}", state.value, state.param))};
    draft.statements.push_back(std::move(output));
  }
  return check(draft, ir::Mode::Gradual);
}

// Those of the states that are counted as proved.
std::vector<Asked::State> proved_in(const Asked &bare, const Checked &checked) {
  std::vector<Asked::State> proved;
  for (const Asked::State &state : bare.states) {
    ValueId value = checked.ids[state.value];
    const ir::Type &type = checked.program.types[checked.result.types[value.index]];
    AxisSet axes = checked.program.meshes[type.mesh()].typed_axes();
    const checker::CheckResult &result = checked.result;
    if ((axes - (result.proved[value.index] - result.own[value.index])).empty())
      proved.push_back(state);
  }
  return proved;
}

std::string text_of(const Asked &bare) {
  std::string text = bare.draft.print();
  for (const Asked::State &state : bare.states)
    text += fmt::format("output state %{} of %{}\n", state.value, state.param);
  return text;
}

// What each rank has of a value, in words; none: the ranks differ in that.
std::optional<std::string> extents_in(const Checked &run, Execution &execution, unsigned value) {
  const ValueId id = run.ids[value];
  const ir::ShapeId shape = id.valid() ? run.result.shapes[id.index] : ir::ShapeId();
  if (!shape.valid() || !execution.ran(id))
    return std::nullopt;
  const Held &held = execution.held(id);
  const Dims &dims = held.at[held.rep[0]].dims;
  for (uint8_t rep : held.rep)
    if (held.at[rep].dims != dims)
      return std::nullopt;
  return std::string(ir::info(run.program.shapes[shape].dtype).word) + list_of(dims);
}

// Whether a rank takes a part of what is cut along that axis.
bool takes_of_own(const Draft &draft, const Checked &run) {
  return llvm::any_of(draft.statements, [&](const Statement &statement) {
    if (statement.op != "convert")
      return false;
    const ValueId id = run.ids[statement.operands[0].values[0]];
    const ir::Type &type = run.program.types[run.result.types[id.index]];
    const ir::Mesh &mesh = run.program.meshes[type.mesh()];
    for (ir::AxisId axis : type.sharded())
      if (run.program.strings[mesh[axis].name] == llvm::StringRef(*statement.attr("axis")))
        return true;
    return false;
  });
}

class BareTrial {
public:
  BareTrial(const Asked &asked, const Checked &original, uint64_t seed, bool shows,
            BareTally &tally)
      : asked_(asked), original_(original), seed_(seed), shows_(shows), tally_(tally) {}

  void run(std::string_view slip, const Mutant &mutant) {
    const bool trains_all = seed_ % 2;
    const llvm::StringRef was = mutant.what;
    // Where a slice ends is counted in the block of a rank.
    if (slip == "another dim" && was.contains("= slice"))
      return;
    Asked stripped = bare({mutant.draft, asked_.states}, trains_all);
    if (stripped.states.empty())
      return;
    std::string what;
    BareFate fate = judged(mutant, stripped, trains_all, what);
    ++tally_.slips[slip][static_cast<size_t>(fate)];
    if (shows_ || fate == BareFate::Unsound)
      fmt::print("{}: seed {}, {} ({}): {}\n{}\n", kBareFates[static_cast<size_t>(fate)], seed_,
                 slip, mutant.what, what, text_of(stripped));
  }

private:
  // It is run on ranks and on one device, with the types that its values had, and checked without.
  BareFate judged(const Mutant &mutant, Asked &stripped, bool trains_all, std::string &what) {
    std::optional<Draft> words = forced(mutant, original_);
    std::unique_ptr<Checked> run = words ? check(*words) : nullptr;
    if (!run || !run->read)
      return what = "it cannot be run", BareFate::NotJudged;
    Execution execution(run->program, run->result, seed_);
    if (Verdict verdict = execution.run(); !verdict.is(Verdict::Form::Upheld))
      return what = verdict.what, BareFate::NotJudged;
    if (!trains_all && takes_of_own(stripped.draft, *run))
      return what = "any rows of a batch are as good", BareFate::NotJudged;
    for (Statement &statement : stripped.draft.statements)
      for (unsigned id : statement.declares() ? llvm::ArrayRef<unsigned>() : statement.results) {
        std::optional<std::string> extents = extents_in(*run, execution, id);
        if (!extents)
          return what = "ranks differ in extents", BareFate::NotJudged;
        statement.claims.push_back(*extents);
      }
    std::unique_ptr<Checked> checked = check_bare(stripped);
    if (!checked->read)
      return BareFate::Unreadable;
    if (!checked->result.findings.empty()) {
      what = checked->result.findings.front().info().name;
      if (mutant.slip.empty())
        ++tally_.alarms[what];
      return BareFate::Found;
    }
    std::vector<Asked::State> proved = proved_in(stripped, *checked);
    tally_.states += stripped.states.size();
    tally_.proved += proved.size();
    for (const Asked::State &state : proved) {
      ValueId value = run->ids[state.value];
      Typed known = execution.setting().typed(value, 0);
      std::string against = execution.refute(value, known, run->program.types[known.type]);
      if (!against.empty())
        return what = fmt::format("%{}: {}", state.value, against), BareFate::Unsound;
    }
    return proved.empty() ? BareFate::Unproved : BareFate::Right;
  }

  const Asked &asked_;
  const Checked &original_;
  uint64_t seed_;
  bool shows_;
  BareTally &tally_;
};

// What still is one without words.
bool outlives_words(std::string_view slip) {
  static constexpr std::string_view kSlips[] = {
      "drop a transition", "do it twice",        "another axis",       "another dimension",
      "average for sum",   "another transition", "drop an op",         "another operand",
      "another dim",       "drop a scale",       "insert a collective"};
  return llvm::is_contained(kSlips, slip);
}

} // namespace

Asked asked(const Draft &draft, const Checked &checked, Random &random) {
  Asked made{draft, {}};
  Recording recording(draft);
  Asking asking(made, checked);
  llvm::SmallVector<unsigned, 32> values;
  for (const Statement &statement : draft.statements)
    for (unsigned id : statement.results)
      if (!statement.declares() && recording.has(id))
        values.push_back(id);
  for (unsigned tries = 0; tries < 4 && !values.empty(); ++tries) {
    size_t at = values.size() - 1 - random.below(std::min<size_t>(values.size(), 12));
    asking.about(values[at]);
    values.erase(values.begin() + static_cast<ptrdiff_t>(at));
  }
  llvm::SmallVector<unsigned, 8> wanted;
  for (const Asked::State &state : made.states)
    wanted.push_back(state.value);
  made.draft = Recording(made.draft).needed_by(wanted);
  return made;
}

Asked bare(const Asked &asked, bool trains_all) {
  Recording recording(asked.draft);
  Asked made;
  llvm::SmallVector<unsigned, 8> wanted;
  for (const Asked::State &state : asked.states)
    if (recording.has(state.value)) {
      made.states.push_back(state);
      wanted.push_back(state.value);
    }
  made.draft = recording.bare(wanted);
  for (Statement &statement : made.draft.statements) {
    const bool numbers = ir::starts_with(llvm::StringRef(statement.type), "f");
    if (statement.role == "input" && trains_all && numbers)
      statement.role = "param";
    else if (statement.role == "input" && !trains_all)
      forget_cut(statement);
  }
  return made;
}

void try_bare(const Draft &draft, const Checked &checked, uint64_t seed, unsigned mutants,
              bool shows, BareTally &tally) {
  if (llvm::StringRef(draft.head).contains("mode = local"))
    return;
  Random random(seed ^ 0xBA2Eull << 32);
  Asked made = asked(draft, checked, random);
  if (made.states.empty())
    return;
  std::unique_ptr<Checked> original = check(made.draft);
  if (!original->clean())
    return;
  BareTrial trial(made, *original, seed, shows, tally);
  trial.run("as it is", {made.draft, {}, {}, {}, false});
  for (unsigned i = 0; i < mutants; ++i)
    if (std::optional<Mutant> mutant = mutate(made.draft, *original, random);
        mutant && !mutant->means_nothing && outlives_words(mutant->slip))
      trial.run(mutant->slip, *mutant);
}

bool BareTally::sound() const {
  return llvm::none_of(slips, [](const auto &slip) {
    return slip.second[static_cast<size_t>(BareFate::Unsound)] > 0;
  });
}

void BareTally::add(const BareTally &more) {
  for (const auto &[slip, fates] : more.slips)
    for (size_t i = 0; i < fates.size(); ++i)
      slips[slip][i] += fates[i];
  for (const auto &[name, count] : more.alarms)
    alarms[name] += count;
  proved += more.proved;
  states += more.states;
}

void BareTally::print() const {
  fmt::print("\nwithout annotations");
  for (std::string_view fate : kBareFates)
    fmt::print("  {}", fate);
  fmt::print("\n");
  Fates all{};
  for (const auto &[slip, fates] : slips) {
    fmt::print("{:<19}", slip);
    for (size_t i = 0; i < fates.size(); ++i) {
      fmt::print("  {:>{}}", fates[i], kBareFates[i].size());
      all[i] += fates[i];
    }
    fmt::print("\n");
  }
  fmt::print("{:<19}", "all");
  for (size_t i = 0; i < all.size(); ++i)
    fmt::print("  {:>{}}", all[i], kBareFates[i].size());
  fmt::print("\n{} of {} parameters of silent programs proved\nfound in right ones:", proved,
             states);
  for (const auto &[name, count] : alarms)
    fmt::print(" {} {}", name, count);
  fmt::print("\n");
}

} // namespace spmd::soundness
