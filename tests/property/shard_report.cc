// What was wrong, and what was refused without need.
#include "tests/property/shard_check.h"

#include "tests/unit/catch.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace spmd::property {

constexpr size_t kShownFailures = 2;

void ShardCheck::report() const {
  for (const auto &[name, all] : failures_)
    for (size_t i = 0; i < std::min<size_t>(all.size(), kShownFailures); ++i)
      FAIL_CHECK(all[i] << ", one of " << all.size());
}

void check_needless(std::initializer_list<const ShardCheck *> checks,
                    std::initializer_list<std::span<const NeedlessEntry>> lists) {
  std::vector<NeedlessEntry> listed;
  for (std::span<const NeedlessEntry> list : lists)
    listed.insert(listed.end(), list.begin(), list.end());
  NeedlessMap found;
  for (const ShardCheck *check : checks) {
    found.insert(check->needless.begin(), check->needless.end());
    const ShardCounts &counts = check->counts;
    UNSCOPED_INFO(counts.cases << " cases, " << counts.accepted << " assignments accepted, "
                               << counts.refused << " refused, of these " << counts.needless
                               << " needlessly");
    check->report();
    CHECK(counts.accepted > 0);
    CHECK(counts.refused > 0);
    // With an operand of unknown type there are findings, and not always.
    CHECK((counts.unknown == 0 || counts.unknown > counts.certain));
  }
  std::vector<bool> used(listed.size());
  for (const auto &[family, what] : found) {
    bool known = false;
    for (size_t i = 0; i < listed.size(); ++i)
      if (family.first.starts_with(listed[i].name) && family.second == listed[i].violation)
        known = used[i] = true;
    if (!known)
      FAIL_CHECK("needlessly refused: " << family.first << ", " << family.second << ", "
                                        << what.count << " times, as in " << what.example);
  }
  for (size_t i = 0; i < listed.size(); ++i) {
    INFO(listed[i].name << ", " << listed[i].violation << ": is not refused needlessly any more");
    CHECK(used[i]);
  }
}

} // namespace spmd::property
