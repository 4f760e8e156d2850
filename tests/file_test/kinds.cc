// Kinds as text, taken apart into one entry per axis.
#include "tests/file_test/kinds.h"

#include "ir/mesh/scale.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdlib>

namespace spmd::tests {
namespace {

struct Kinds {
  std::map<std::string, std::string> by_axis; // "" stands for all others
  std::string scale;
};

// The next word; spaces within parentheses belong to it.
llvm::StringRef take_word(llvm::StringRef &text) {
  int depth = 0;
  size_t at = 0;
  for (; at < text.size() && (depth > 0 || text[at] != ' '); ++at)
    depth += (text[at] == '(') - (text[at] == ')');
  llvm::StringRef word = text.take_front(at);
  text = text.drop_front(at).ltrim();
  return word;
}

llvm::SmallVector<llvm::StringRef, 4> split_axes(llvm::StringRef axes) {
  llvm::SmallVector<llvm::StringRef, 4> names;
  axes.trim("() ").split(names, ',');
  for (llvm::StringRef &name : names)
    name = name.trim();
  return names;
}

// In common pieces and canonical order; as it stands where it is no scale.
std::string canonical(llvm::StringRef text, const std::map<std::string, std::string> &sizes) {
  ir::StringTable names;
  std::optional<ir::Scale> scale = ir::parse_scale(text, names);
  if (!scale)
    return text.str();
  ir::Scale made{scale->numerator, scale->denominator, {}};
  for (const ir::ScaleFactor &factor : scale->factors) {
    auto at = sizes.find(names[factor.base].str());
    std::optional<ir::Scale> size =
        at == sizes.end() ? std::nullopt : ir::parse_scale(at->second, names);
    if (!size)
      size = ir::Scale{1, 1, {{factor.base, 1}}};
    if (factor.exponent < 0)
      size = ir::inverse(*size);
    for (int32_t i = 0; size && i < std::abs(factor.exponent); ++i)
      if (std::optional<ir::Scale> product = ir::multiply(made, *size, names))
        made = *product;
  }
  return ir::print(made, names);
}

Kinds parse(llvm::StringRef text, bool erased) {
  Kinds kinds;
  std::map<std::string, std::string> innermost; // S(i) -> the axis written last
  text = text.trim();
  while (!text.empty()) {
    llvm::StringRef word = take_word(text);
    if (word == "scale") {
      kinds.scale = erased ? "" : text.str();
      break;
    }
    auto [kind, axes] = word.split('@');
    if (kind == "P(sum)")
      kind = "P";
    bool shard = ir::starts_with(kind, "S(");
    if (erased && shard)
      kind = "V";
    // Which of the axes on one dimension is the outer one is part of the claim.
    llvm::SmallVector<llvm::StringRef, 4> names = split_axes(axes);
    for (llvm::StringRef name : names) {
      std::string &outer = innermost[kind.str()];
      kinds.by_axis[name.str()] =
          kind.str() + (shard && !erased && !outer.empty() ? " inside " + outer : "");
      outer = name.str();
    }
  }
  return kinds;
}

} // namespace

bool equal_kinds(llvm::StringRef asserted, llvm::StringRef found, const KindsRead &how) {
  Kinds wanted = parse(asserted, how.erased), have = parse(found, how.erased);
  if (auto others = wanted.by_axis.find(""); others != wanted.by_axis.end()) {
    std::string kind = others->second;
    wanted.by_axis.erase(others);
    for (const auto &[axis, unused] : have.by_axis)
      wanted.by_axis.try_emplace(axis, kind);
  }
  for (auto &[axis, kind] : have.by_axis)
    if (auto at = wanted.by_axis.find(axis); how.loose && kind == "R|I" &&
                                             at != wanted.by_axis.end() &&
                                             (at->second == "R" || at->second == "I"))
      kind = at->second;
  if (how.loose && asserted.find("S(") != llvm::StringRef::npos &&
      asserted.find("@(") == llvm::StringRef::npos)
    for (Kinds *kinds : {&wanted, &have})
      for (auto &[axis, kind] : kinds->by_axis)
        kind = kind.substr(0, kind.find(" inside "));
  return wanted.by_axis == have.by_axis &&
         canonical(wanted.scale, how.sizes) == canonical(have.scale, how.sizes);
}

std::string sorted_axes(llvm::StringRef axes) {
  llvm::SmallVector<llvm::StringRef, 4> names = split_axes(axes);
  llvm::sort(names);
  return llvm::join(names, ", ");
}

} // namespace spmd::tests
