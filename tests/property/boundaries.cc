// Every place where a value meets a claim or another value, with every pair of kinds: what is
// accepted there follows from one rule, on axes that are judged locally and on those that are not.
#include "rules/violations/shards.h"

#include "checker/check.h"
#include "ir/input/input.h"
#include "ir/support/strings.h"
#include "tests/unit/catch.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

#include <fmt/core.h>

#include <string>
#include <vector>

namespace spmd::property {
namespace {

// How a value is on axis `a`; S0 and S1 are cut there. Unknown: `?`.
enum class How { R, I, V, P, Reduced, S0, S1, Unknown };
constexpr How kAll[] = {How::R,       How::I,  How::V,  How::P,
                        How::Reduced, How::S0, How::S1, How::Unknown};

// What is done with the two kinds.
enum class Form {
  Compared, // the claim must hold
  Joined,   // and may say how pieces join that are V without a dimension
  Region,   // leaves a local region: shards are lists there, a claim says how they join
  Met,      // another value takes turns with it
  Believed, // nothing is known but the claim
};

// The program of a place. `$v` defines %v of the first kind, `$w` %w of the second; `$T` is the
// second as a whole type, `$K` in words, `$W` on the axis alone, `$A` the first on the axis alone,
// `$U` as a whole type.
struct Boundary {
  const char *name;
  Form form;
  std::string program;
  bool forgets = false; // dimensions of %v on global axes
  bool leaves = false;  // what is V without a dimension is refused
  bool opaque = false;  // what a function without a body says is reported
  bool stacked = false; // %v has a dimension more in front
  bool kept = false;    // a buffer has no gradient
  bool worded = false;  // no whole type: the order of axes cannot be report
};

std::vector<Boundary> boundaries() {
  const std::string id = "func @f(%p) {\n  return %p\n}\n",
                    claimed = "func @f(%p: $T) {\n  return %p\n}\n",
                    more = "func @more(%p) {\n  return false\n}\n",
                    first = "func @first(%p, %q) {\n  return %p\n}\n",
                    second = "func @second(%p, %q) {\n  return %q\n}\n",
                    flag = "%c = input bool[] R\n";
  std::vector<Boundary> all = {
      {"result of an op", Form::Compared, "$v%y: $T = identity %v\n"},
      {"operand of a function", Form::Compared, claimed + "$v%y = call %v { body = @f }\n"},
      {"result of a function", Form::Compared, id + "$v%y: $T = call %v { body = @f }\n"},
      {"operand of a checkpoint", Form::Compared, claimed + "$v%y = checkpoint %v { body = @f }\n"},
      {"operand of a branch", Form::Compared,
       claimed + flag + "$v%y = cond %c, %v { then = @f, else = @f }\n"},
      {"result of branches", Form::Compared,
       id + flag + "$v%y: $T = cond %c, %v { then = @f, else = @f }\n"},
      {"two branches", Form::Met,
       first + second + flag + "$v$w%y = cond %c, %v, %w { then = @first, else = @second }\n"},
      {"operand of a loop", Form::Compared,
       claimed + more + "$v%y = while %v { cond = @more, body = @f }\n"},
      {"operand of the condition of a loop", Form::Compared,
       id + "func @more(%p: $T) {\n  return false\n}\n$v%y = while %v { cond = @more, body = @f "
            "}\n"},
      {"result of a loop", Form::Compared,
       id + more + "$v%y: $T = while %v { cond = @more, body = @f }\n"},
      {"carry of a loop", Form::Met,
       first + "func @more(%p, %q) {\n  return false\n}\n"
               "$v$w%y = while %v, %w { consts = 1, cond = @more, body = @first }\n"},
      {"constant of a scan", Form::Compared,
       "func @g(%p: $T, %q) {\n  return %q\n}\n$v%z = input f32[] R\n"
       "%y = scan %v, %z { consts = 1, carry = 1, length = 3, body = @g }\n"},
      {"operand that a scan carries", Form::Compared,
       claimed + "$v%y = scan %v { carry = 1, length = 3, body = @f }\n"},
      {"result that a scan carries", Form::Compared,
       id + "$v%y: $T = scan %v { carry = 1, length = 3, body = @f }\n"},
      {"carry of a scan", Form::Met,
       first + "$v$w%y = scan %v, %w { consts = 1, carry = 1, length = 3, body = @first }\n"},
      {"operand that a scan takes apart", Form::Compared,
       claimed + "$v%y = scan %v { carry = 0, body = @f }\n", false, false, false, true},
      {"result that a scan stacks", Form::Compared,
       id + "$v%y: $T3 = scan %v { carry = 0, body = @f }\n", false, false, false, true},
      {"operand of a region", Form::Compared,
       "$v%y: f32[] R = local_map over a (%q = %v $K) {\n"
       "  %k = ones { shape = [], dtype = f32 }\n  yield %k\n}\n"},
      {"operand of a region on another axis", Form::Compared,
       "$v%y = local_map over b (%q = %v $K) {\n"
       "  %k = ones { shape = [], dtype = f32 }\n  yield %k\n}\n"},
      {"result of a region", Form::Region,
       "$v%y: $T = local_map over a (%q = %v) {\n  yield %q\n}\n", true, true},
      {"result of a region on another axis", Form::Compared,
       "$v%y: $T = local_map over b (%q = %v) {\n  yield %q\n}\n"},
      {"statement in a region", Form::Region, "$vlocal (a) {\n  %y: $T = identity %v\n}\n", true},
      {"to_local", Form::Compared, "$v%y: $T = to_local %v\n", true},
      {"from_local", Form::Joined, "$v%y = from_local %v { type = $T }\n"},
      {"assert_type", Form::Joined, "$vassert_type %v { type = $T }\n"},
      {"assert_type of the source", Form::Joined, "$vassert_type %v { axis = a, src = $W }\n"},
      {"assert_type of the result", Form::Joined, "$vassert_type %v { axis = a, dst = $W }\n"},
      {"assert_type of both", Form::Joined, "$vassert_type %v { axis = a, src = $A, dst = $W }\n"},
      {"output", Form::Joined, "$voutput %v: $T\n", false, true},
      {"operand of an opaque function", Form::Compared,
       "func @f(%p: $T) -> f32[] R\n$v%y = call %v { body = @f }\n", false, false, true},
      {"result of an opaque function", Form::Believed,
       "func @f(%p) -> $T\n$v%y = call %v { body = @f }\n", false, false, true},
      {"stated result of an opaque function", Form::Compared,
       "func @f(%p) -> $U\n$v%y: $T = call %v { body = @f }\n", false, false, true},
      {"opaque branches", Form::Met,
       "func @first(%p, %q) -> $U\nfunc @second(%p, %q) -> $T\n" + flag +
           "$v$w%y = cond %c, %v, %w { then = @first, else = @second }\n",
       false, false, true},
      {"carry of an opaque scan", Form::Met,
       "func @first(%p) -> $U\n$v$w%y = scan %w { carry = 1, length = 3, body = @first }\n", false,
       false, true},
      {"content of a buffer", Form::Compared, "%b = buffer $T\n$vstore %b, %v\n", false, false,
       false, false, true},
  };
  for (Boundary &each : all)
    each.worded = each.program.find("$K") != std::string::npos ||
                  each.program.find("$W") != std::string::npos;
  return all;
}

bool is_cut(How how) { return how == How::S0 || how == How::S1; }
bool is_same(How how) { return how == How::R || how == How::I || how == How::Reduced; }

enum class Verdict { Accepted, Mismatch, NoSpec };
struct Expected {
  Verdict verdict = Verdict::Accepted;
  bool unchecked = false; // `unchecked-claim`
};

// The rule. `local`: axis a is judged locally in the whole program. `free`: no gradient passes.
Expected expected(const Boundary &at, How found, How claim, bool local, bool free) {
  auto kind = [&](How how) { return local && is_cut(how) ? How::V : how; };
  found = kind(found), claim = kind(claim);
  if (at.forgets && is_cut(found))
    found = How::V;
  Expected say{Verdict::Accepted, at.opaque};
  if (at.form == Form::Believed)
    return say;
  free |= at.kept;
  bool region = at.form == Form::Region && !local;
  bool pieces = region || at.form == Form::Joined;
  bool agrees = found == claim || found == How::Unknown || claim == How::Unknown ||
                (free && is_same(found) && is_same(claim)) || // what nobody differentiates
                (found == How::Reduced && claim == How::R) ||
                (at.form == Form::Met && found == How::R && claim == How::Reduced) ||
                (at.form != Form::Met && is_cut(found) && claim == How::V) || // says less
                (pieces && found == How::V && is_cut(claim));                 // says how they join
  if (region && found == How::V && claim == How::P)
    agrees = say.unchecked = true;
  bool bare = (found == How::V && (claim == How::V || claim == How::Unknown)) ||
              (found == How::Unknown && claim == How::V);
  say.verdict = !agrees                       ? Verdict::Mismatch
                : at.leaves && bare && !local ? Verdict::NoSpec
                                              : Verdict::Accepted;
  return say;
}

// --- The programs.

std::string word(How how) {
  static constexpr const char *kWords[] = {"R", "I", "V", "P", "Reduced", "S(0)", "S(1)", "?"};
  return kWords[static_cast<unsigned>(how)];
}

// Words, extents first. `lead`: `3, ` where a dimension is in front.
std::string type_of(How how, bool lead) {
  const char *extents = how == How::S0 ? "4@a, 4" : how == How::S1 ? "4, 4@a" : "4, 4";
  std::string kinds = is_cut(how) ? "R@b" : word(how) + "@a R@b";
  return fmt::format("f32[{}{}] {}", lead ? "3, " : "", extents, kinds);
}

std::string value_of(const char *name, How how, bool local, bool free, bool lead) {
  const char *options = free ? " { requires_grad = false }" : "";
  if (how != How::V || local)
    return fmt::format("%{} = input {}{}\n", name, type_of(how, lead), options);
  return fmt::format("%{0}s = input {1}{2}\n%{0} = to_local %{0}s\n", name, type_of(How::S0, lead),
                     options);
}

void replace_all(std::string &text, llvm::StringRef from, const std::string &to) {
  for (size_t at = 0; (at = text.find(from.data(), at, from.size())) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
}

std::string program_of(const Boundary &at, How found, How claim, bool local, bool free) {
  std::string text = at.program;
  replace_all(text, "$v", value_of("v", found, local, free, at.stacked));
  replace_all(text, "$w", value_of("w", claim, local, free, at.stacked));
  replace_all(text, "$T3", type_of(claim, true));
  replace_all(text, "$T", type_of(claim, false));
  replace_all(text, "$U", type_of(found, false));
  replace_all(text, "$K", word(claim) + "@a R@b");
  replace_all(text, "$W", word(claim));
  replace_all(text, "$A", word(found));
  return std::string("trace { mode = ") + (local ? "local" : "global") +
         " }\nmesh m { a = 2, b = 2 }\n" + text;
}

struct Reported {
  std::vector<std::string> errors;
  bool unchecked = false;
};

Reported reported(const std::string &text) {
  ir::ReadResult read = ir::read_program(text);
  for (const ir::InputError &error : read.errors)
    UNSCOPED_INFO(error.name << " " << error.line << " " << error.message);
  REQUIRE(read.errors.empty());
  Reported report;
  for (const checker::Finding &finding : checker::check(read.program).findings) {
    std::string name(finding.info().name);
    if (name == "unchecked-claim")
      report.unchecked = true;
    else if (finding.info().severity == rules::Severity::Error)
      report.errors.push_back(name);
  }
  return report;
}

bool is_mismatch(const std::string &name) {
  static constexpr llvm::StringRef kNames[] = {
      "claim-mismatch", "boundary-mismatch",     "branch-mismatch",      "carry-mismatch",
      "partial-state",  "mutation-changes-type", "reduced-without-owner"};
  return llvm::is_contained(kNames, name);
}

} // namespace

TEST_CASE("a claim at a boundary holds, or is refused there") {
  unsigned programs = 0;
  for (const Boundary &at : boundaries())
    for (How found : kAll)
      for (How claim : kAll)
        for (bool local : {false, true})
          for (bool free : {false, true}) {
            std::string text = program_of(at, found, claim, local, free);
            INFO(at.name << ": " << word(found) << " where " << word(claim) << " is claimed\n"
                         << text);
            Reported report = reported(text);
            Expected wanted = expected(at, found, claim, local, free);
            std::string all;
            for (const std::string &name : report.errors)
              all += name + " ";
            INFO("errors: " << all);
            if (wanted.verdict == Verdict::Mismatch)
              CHECK((!report.errors.empty() && llvm::all_of(report.errors, is_mismatch)));
            else if (wanted.verdict == Verdict::NoSpec)
              CHECK(report.errors == std::vector<std::string>{"no-spec"});
            else
              CHECK(report.errors.empty());
            if (wanted.verdict == Verdict::Accepted)
              CHECK(report.unchecked == wanted.unchecked);
            ++programs;
          }
  CHECK(programs > 7000);
}

// The order of the axes that cut one dimension is part of what is claimed.
TEST_CASE("axes in another order are another cut") {
  static constexpr const char *kCuts[] = {"f32[%4@(a,b), 4]", "f32[%4@(b,a), 4]", "f32[%4@a, 4@b]",
                                          "f32[%4@b, 4@a]", "f32[%4, 4@(a,b)]"};
  auto type = [](const char *cut, bool lead) {
    std::string text = cut;
    replace_all(text, "%", lead ? "3, " : "");
    return text;
  };
  for (const Boundary &at : boundaries())
    for (const char *found : kCuts)
      for (const char *claim : kCuts) {
        // A region on either axis forgets the order.
        if (at.form == Form::Region || at.form == Form::Believed || at.forgets || at.worded ||
            ir::starts_with(llvm::StringRef(at.name), "result of a region"))
          continue;
        std::string text = at.program;
        replace_all(text, "$v", "%v = input " + type(found, at.stacked) + "\n");
        replace_all(text, "$w", "%w = input " + type(claim, at.stacked) + "\n");
        replace_all(text, "$T3", type(claim, true));
        replace_all(text, "$T", type(claim, false));
        replace_all(text, "$U", type(found, false));
        text = "mesh m { a = 2, b = 2 }\n" + text;
        INFO(at.name << "\n" << text);
        CHECK(reported(text).errors.empty() == (found == claim));
      }
}

} // namespace spmd::property
