// Pages that no other table carries: kinds, statements about values, and input errors.
#include "checker/cli/commands/manual.h"

#include "ir/kind.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::checker {
namespace {

struct Page {
  std::string_view name, text;
};

// In the order of the enumeration, the shard last.
constexpr Page kKindPages[] = {
    {"R", "The ranks hold equal values, and each rank uses its copy separately. The gradient of a "
          "copy is therefore\n"
          "pending: the whole gradient is the sum over the ranks."},
    {"Reduced", "As replicate, and a transition upstream is known to sum the gradient. It may "
                "stand wherever R is\n"
                "asked for."},
    {"I", "The ranks hold equal values and use them as one: the value counts once. Its gradient is "
          "equal on all\n"
          "ranks as well. Losses and unsharded parameters of tensor-parallel regions are typically "
          "invariant."},
    {"V", "The ranks may hold different values; nothing says how they belong together."},
    {"P", "The ranks hold addends: the value is their sum, still pending. It may be added to "
          "another partial or be\n"
          "scaled by what is equal on all ranks; a nonlinear function needs the sum first. P(max) "
          "and the like await\n"
          "another combiner."},
    {"S", "S(i) is V together with a claim: dimension i is cut into consecutive blocks, one per "
          "rank, and the value\n"
          "is their concatenation. In a type it is also written on the dimension: f32[8, 16@tp]."},
};
constexpr std::string_view kShardName = "shard";
constexpr std::string_view kUnknownPage = "?, unknown\n"
                                          "What the ranks hold along this axis is not known: it is "
                                          "not stated, comes out of an op without a "
                                          "rule, or\n"
                                          "follows from a finding. Nothing that depends on it is "
                                          "checked on this axis. The last line of the "
                                          "output\ncounts such values.\n";

// Statements about values at the boundary of a program, and ops with bodies.
constexpr Page kStatementPages[] = {
    {"assert_type", "checks the stated type of a value and passes the value on"},
    {"mutate_type", "replaces the type of a value by the stated one, without proof"},
    {"backward", "roots the gradients: its operand is a loss, invariant or partial on every axis"},
    {"grad", "the gradient of a value: partial where it is replicate, replicate where it is "
             "partial, else of its type"},
    {"step", "the optimizer: a parameter and its gradient"},
    {"store", "the new content of a buffer, of the type of the buffer"},
    {"report", "publishes a number, which must be the same on every rank"},
    {"to_local", "takes the local part out of a sharded value: S(i) becomes V"},
    {"from_local", "states how local parts join: V becomes the S(i) of its type"},
    {"rng", "a random state, equal (R) or different (V) along each axis"},
    {"fork", "a random state that differs along an axis"},
    {"scale", "multiplies the data by axis sizes and leaves the meaning as it is"},
    {"axis_index", "the coordinate of a rank along an axis: V there"},
    {"send", "hands a value to another rank; untyped across stages"},
    {"recv", "receives a value, whose type is stated"},
    {"redistribute", "goes from one type to another by whatever steps are cheapest"},
    {"reinterpret_mesh", "the same data seen on another mesh over the same ranks"},
    {"local_map", "runs a body in which some axes are local"},
    {"call", "runs a function of the program"},
    {"checkpoint", "runs a function of the program, and again in backward"},
    {"scan", "runs a body once per entry of dimension 0"},
    {"cond", "runs one of two bodies"},
    {"while", "runs a body as long as a condition holds"},
};

constexpr Page kInputErrorPages[] = {
    {"trace-syntax", "not JSON, or not text of the grammar"},
    {"trace-encoding", "not UTF-8, or compressed data is damaged"},
    {"trace-version", "a major version that this reader does not know"},
    {"trace-feature", "an entry of `requires` that this reader does not know"},
    {"trace-key", "a required key is absent, a known key has the wrong form, or a key is repeated"},
    {"trace-duplicate", "an id is defined twice"},
    {"trace-reference", "an id or index does not exist, or is used before its definition"},
    {"trace-mesh", "a malformed mesh or group"},
    {"trace-shape", "malformed extents"},
    {"trace-type", "a malformed kind or partition spec, or an axis that is not in the mesh"},
    {"trace-rule", "a malformed equation, or a rule for an op that has one"},
    {"trace-truncated", "no `end` record, or `op_count` differs"},
    {"trace-limit", "a limit of the format is exceeded"},
    {"trace-newer", "a minor version newer than this reader; a warning"},
};

const Page *find_page(llvm::ArrayRef<Page> pages, llvm::StringRef name) {
  const Page *found =
      llvm::find_if(pages, [&](const Page &page) { return name == llvm::StringRef(page.name); });
  return found == pages.end() ? nullptr : found;
}

std::string one_line(llvm::ArrayRef<Page> pages, llvm::StringRef name) {
  const Page *page = find_page(pages, name);
  return page ? fmt::format("{}: {}\n", page->name, page->text) : "";
}

Names names_of(llvm::ArrayRef<Page> pages) {
  Names names;
  for (const Page &page : pages)
    names.push_back(page.name);
  return names;
}

} // namespace

std::string kind_page(llvm::StringRef name) {
  if (name == "?")
    return std::string(kUnknownPage);
  if (name == llvm::StringRef(kShardName) || name.startswith("S("))
    name = "S";
  for (const ir::KindInfo &kind : ir::kKinds)
    if (name == llvm::StringRef(kind.name) || name == llvm::StringRef(kind.word))
      return fmt::format("{}, {}\n{}\nIts gradient is {}.\n", kind.word, kind.name,
                         find_page(kKindPages, kind.word)->text, ir::info(kind.dual).name);
  const Page *page = find_page(kKindPages, name);
  return page ? fmt::format("S(i), {}\n{}\nIts gradient is sharded in the same way.\n", kShardName,
                            page->text)
              : "";
}

Names kind_names() {
  Names names = names_of(kKindPages);
  names.push_back("?");
  return names;
}
std::string statement_page(llvm::StringRef name) { return one_line(kStatementPages, name); }
Names statement_names() { return names_of(kStatementPages); }
std::string input_error_page(llvm::StringRef name) { return one_line(kInputErrorPages, name); }
Names input_error_names() { return names_of(kInputErrorPages); }

} // namespace spmd::checker
