// The results of bodies, put into one list of findings.
#include "checker/walk/body_result.h"

#include "ir/support/arrays.h"
#include "rules/shapes/extent_facts.h"
#include "rules/violations/coverage.h"

namespace spmd::checker {

namespace {

uint64_t hash_of(llvm::ArrayRef<uint32_t> key) {
  return ir::hash_bytes(key.data(), key.size() * sizeof(uint32_t));
}

} // namespace

std::optional<uint32_t> TypedBodies::find(llvm::ArrayRef<uint32_t> key) {
  uint32_t at =
      table_.find(hash_of(key), [&](uint32_t i) { return ir::as_array(bodies_[i].key) == key; });
  return at == ir::IndexTable::kEmpty ? std::nullopt : std::optional(at);
}

uint32_t TypedBodies::add(TypedBody body) {
  const auto index = static_cast<uint32_t>(bodies_.size());
  table_.find(hash_of(body.key), [&](uint32_t i) { return bodies_[i].key == body.key; }) = index;
  bodies_.push_back(std::move(body));
  table_.inserted();
  return index;
}

Collector::Collector(const ir::Program &program, const TypedBodies &bodies)
    : program_(program), bodies_(bodies), seen_(bodies.size(), false) {}

// A rule of the user is reported once, where it is first used, and so is what symbols leave open.
void Collector::add(BodyResult &body_result, CheckResult &into) {
  refused_ |= body_result.refused;
  for (BodyResult::Entry &entry : body_result.entries) {
    if (entry.body != BodyResult::kNone) {
      if (!seen_[entry.body]) {
        seen_[entry.body] = true;
        BodyResult body = bodies_[entry.body].body_result;
        add(body, into);
      }
      continue;
    }
    const Finding &finding = *entry.finding;
    bool fresh = true;
    if (finding.violation.is<rules::AssumedRule>())
      fresh = assumed_.insert(program_.insts[finding.place.as_inst()].op.index).second;
    else if (const auto *open = finding.violation.as<rules::UndecidedExtents>())
      fresh = questions_.insert(rules::equality_key(program_, open->a, open->b) >> 1).second;
    if (fresh)
      into.findings.push_back(std::move(*entry.finding));
  }
  into.inferred.insert(into.inferred.end(), body_result.inferred.begin(),
                       body_result.inferred.end());
  into.stats.ops += body_result.stats.ops;
  into.stats.unknown_ops += body_result.stats.unknown_ops;
  into.stats.silent += body_result.stats.silent;
}

} // namespace spmd::checker
