// What the elements of a value are made of, on one rank: numbers that are known, or addends, of
// which each is made of certain parts of tensors that a loop goes through, as the micro-batches of
// a pipeline are. Equal contents have one id.
#pragma once

#include "llvm/ADT/ArrayRef.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace spmd::checker {

// One part of a tensor. `kMany`: several parts of it, so that nothing is said of it.
struct PartOf {
  static constexpr int64_t kMany = -1;
  uint32_t source; // a value, or kResult
  int64_t part;
  static constexpr uint32_t kResult = ~0u; // an entry of what is returned
  friend auto operator<=>(const PartOf &, const PartOf &) = default;
};
using Addend = std::vector<PartOf>; // by source, each once

struct Content {
  // Open: numbers of the rank or of the turn, which are not known. Free: of nothing that is
  // followed.
  enum class Form : uint8_t { Open, Free, Number, Addends };
  Form form = Form::Free;
  int64_t number = 0;
  std::vector<Addend> addends; // ascending
  friend auto operator<=>(const Content &, const Content &) = default;
};

class Contents {
public:
  using Id = uint32_t;
  static constexpr Id kOpen = 0, kFree = 1, kZero = 2;

  Contents();
  Id number(int64_t value);
  Id part(uint32_t source, int64_t part);
  Id sum(Id a, Id b);
  Id product(Id a, Id b);
  // Something that is not linear in any of them.
  Id function(llvm::ArrayRef<Id> of);
  const Content &operator[](Id id) const { return *by_id_[id]; }
  std::optional<int64_t> known(Id id) const {
    const Content &content = *by_id_[id];
    return content.form == Content::Form::Number ? std::optional(content.number) : std::nullopt;
  }

private:
  Id add(Content content);
  Id of_addends(std::vector<Addend> addends);

  std::map<Content, Id> ids_;
  std::vector<const Content *> by_id_;
  std::map<std::pair<Id, Id>, Id> sums_, products_;
};

} // namespace spmd::checker
