// A mutant is tried again where more is looked at: constants become parameters, zeros become data,
// what stops gradients passes them on, each as far as the correct program still checks; and every
// value gets a gradient of its own, as if it were read once more with the type that it has in the
// correct program.
#include "tests/soundness/refusal.h"

#include "ir/support/strings.h"
#include "rules/violations/shards.h"

#include "tests/soundness/judge.h"
#include "tests/soundness/words.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace spmd::soundness {

namespace {

using Edit = std::pair<Statement, Statement>; // before, after

// What would look at more. None if there is nothing to be seen.
std::vector<Statement> revealing(const Statement &statement) {
  static constexpr llvm::StringRef kSilent[] = {"zeros_like", "ones_like", "detach", "sign", "sgn",
                                                "floor",      "ceil",      "round",  "trunc"};
  std::vector<Statement> made;
  Statement more = statement;
  if (statement.role == "const" && ir::starts_with(llvm::StringRef(statement.type), "f")) {
    more.role = "param";
    made.push_back(more);
  }
  if (llvm::is_contained(kSilent, statement.op)) {
    more.op = "neg";
    made.push_back(more);
  }
  for (size_t i = 0; !statement.declares() && i < statement.operands.size(); ++i)
    if (statement.operands[i].form == Operand::Form::Text && statement.operands[i].text == "0") {
      more = statement;
      more.operands[i].text = "2.0";
      made.push_back(more);
    }
  return made;
}

bool replace(Draft &draft, const Edit &edit) {
  std::string before = edit.first.print();
  for (Statement &statement : draft.statements)
    if (statement.print() == before && statement.region == edit.first.region) {
      statement = edit.second;
      return true;
    }
  return false;
}

bool upheld(const Draft &draft, uint64_t seed) {
  std::unique_ptr<Checked> checked = check(draft);
  return checked->clean() &&
         judge(checked->program, checked->result, seed).is(Verdict::Form::Upheld);
}

// The correct program where more is looked at, and how it was changed.
std::pair<Draft, std::vector<Edit>> reveal(const Draft &original, uint64_t seed) {
  Draft made = original;
  std::vector<Edit> edits;
  for (size_t i = 0; i < made.statements.size(); ++i)
    for (Statement &more : revealing(made.statements[i])) {
      Draft tried = made;
      tried.statements[i] = more;
      if (!check(tried)->clean())
        continue;
      edits.emplace_back(made.statements[i], std::move(more));
      made = std::move(tried);
      break;
    }
  if (!upheld(made, seed))
    return {original, {}};
  return {std::move(made), std::move(edits)};
}

class Refusal {
public:
  Refusal(const Mutant &mutant, const Checked &checked, uint64_t seed)
      : mutant_(mutant), checked_(checked), seed_(seed) {}

  bool matters(const Draft &original, std::string &what) {
    auto [more, edits] = reveal(original, seed_);
    std::unique_ptr<Checked> known = check(more);
    Mutant seen = mutant_;
    for (const Edit &edit : edits)
      replace(seen.draft, edit);
    std::optional<Draft> run = forced(seen, *known);
    std::unique_ptr<Checked> unchecked = run ? check(*run) : nullptr;
    if (!unchecked || !unchecked->read)
      return false;
    Execution execution(unchecked->program, unchecked->result, seed_);
    Verdict verdict = execution.run();
    if (verdict.is(Verdict::Form::Upheld)) {
      execution.run_again_observed();
      verdict = execution.judge(Claims::Edges);
    }
    what = verdict.what;
    if (verdict.is(Verdict::Form::Upheld))
      word_ = false_word(unchecked->program, execution, unstated(*unchecked));
    return verdict.is(Verdict::Form::Wrong);
  }
  // Found while it was run.
  const std::string &false_words() const { return word_; }

  bool is_unsaid() const {
    Draft said = mutant_.draft;
    for (unsigned tries = 0; tries < 3; ++tries) {
      std::unique_ptr<Checked> checked = check(said);
      if (checked->clean())
        return tries > 0;
      for (Statement &statement : said.statements)
        owed(*checked, statement).state(statement);
    }
    return false;
  }

  // Of a row that does not exist, an attribute that no op takes, a list where a shard is meant,
  // extents that do not fit: what was run is another statement.
  bool means_nothing() const {
    static constexpr std::string_view kForms[] = {"attribute-mismatch", "no-transition",
                                                  "no-shard-rule", "shape-mismatch"};
    return llvm::any_of(checked_.result.findings, [](const checker::Finding &finding) {
      return llvm::is_contained(kForms, finding.info().name);
    });
  }

private:
  std::vector<Unstated> unstated(const Checked &run) const {
    std::vector<Unstated> found;
    const ir::Program &program = checked_.program;
    for (const checker::Finding &finding : checked_.result.findings) {
      if (!finding.violation.is<rules::UnstatedPartial>() ||
          finding.place.form != checker::Place::Form::Inst)
        continue;
      ir::ValueId result = program.insts[finding.place.as_inst()].first_result;
      for (size_t id = 0; id < checked_.ids.size() && id < run.ids.size(); ++id)
        if (result.valid() && checked_.ids[id] == result && run.ids[id].valid())
          found.push_back({run.ids[id], rules::axes_of(finding.violation)});
    }
    return found;
  }

  const Mutant &mutant_;
  const Checked &checked_;
  uint64_t seed_;
  std::string word_;
};

} // namespace

Reason why_refused(const Mutant &mutant, const Checked &checked, const Draft &original,
                   uint64_t seed, std::string &what) {
  Refusal refusal(mutant, checked, seed);
  if (refusal.matters(original, what))
    return Reason::Matters;
  what = refusal.false_words();
  if (!what.empty())
    return Reason::FalseWord;
  if (refusal.is_unsaid())
    return Reason::Unsaid;
  return refusal.means_nothing() ? Reason::Nothing : Reason::Needless;
}

} // namespace spmd::soundness
