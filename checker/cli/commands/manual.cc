// Pages that no other table carries, kinds and input errors, and those of boundary ops.
#include "checker/cli/commands/manual.h"

#include "rules/boundary/boundary.h"

#include "ir/kind.h"
#include "ir/support/strings.h"

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

// Typed as transitions are, and planned.
constexpr Page kRedistribute = {rules::name_of(rules::TransitionOp::Redistribute),
                                "goes from one type to another by whatever steps are cheapest"};

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

// Boundary ops, then ops with bodies.
void for_each_statement(llvm::function_ref<void(std::string_view, std::string_view)> visit) {
  for (const rules::BoundaryOp &row : rules::boundary_ops())
    visit(row.name(), row.manual);
  for (const rules::CallOp &row : rules::call_ops())
    visit(row.name(), row.manual);
}

} // namespace

std::string kind_page(llvm::StringRef name) {
  if (name == "?")
    return std::string(kUnknownPage);
  if (name == llvm::StringRef(kShardName) || ir::starts_with(name, "S("))
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
std::string statement_page(llvm::StringRef name) {
  if (name == llvm::StringRef(kRedistribute.name))
    return one_line(kRedistribute, name);
  std::string page;
  for_each_statement([&](std::string_view own, std::string_view manual) {
    if (name == llvm::StringRef(own.data(), own.size()))
      page = fmt::format("{}: {}\n", own, manual);
  });
  return page;
}
Names statement_names() {
  Names names;
  for_each_statement([&](std::string_view own, std::string_view) {
    names.push_back({own.data(), own.size()});
  });
  names.push_back(kRedistribute.name);
  return names;
}
std::string input_error_page(llvm::StringRef name) { return one_line(kInputErrorPages, name); }
Names input_error_names() { return names_of(kInputErrorPages); }

} // namespace spmd::checker
