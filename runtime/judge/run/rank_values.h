// What the ranks hold of each value of a run, as it was read back, and what it means. Where ranks
// are processes, fingerprints stand for data that nobody asked for.
#pragma once

#include "runtime/judge/run/options.h"
#include "runtime/judge/run/report.h"
#include "runtime/judge/value_exchange.h"
#include "runtime/reference/meaning.h"

namespace spmd::runtime {

class RankValues {
public:
  // `report` gets why a value has no meaning.
  RankValues(const RunSetup &setup, RunReport &report);

  // By PlannedId: the last execution that asks for a value.
  void keep_until(llvm::ArrayRef<uint32_t> last_use);
  // Operands and results of these executions alone are read, until the last of them that has them.
  void read_only(llvm::ArrayRef<uint32_t> executions);
  bool is_read(PlannedId id) const;

  // Of the ranks that this process holds. `may_be_absent`: of a body that may not have run.
  llvm::Error read(PlannedId id, bool may_be_absent = false);
  // Of all ranks, by the process that judges.
  llvm::Error read_of_all(PlannedId id);
  // The value that was made of a value of the program last.
  void note_latest(PlannedId id);
  PlannedId latest(ir::ValueId value) const { return latest_.lookup(value.index); }
  // Forgets operands and results that nothing after execution `e` asks for.
  void release(uint32_t e, llvm::ArrayRef<PlannedId> kept_to_the_end);
  void forget_meaning(PlannedId id) { values_[id.index].meaning.reset(); }

  llvm::ArrayRef<Tensor> tensors(PlannedId id) const { return values_[id.index].tensors; }
  llvm::ArrayRef<Fingerprint> fingerprints(PlannedId id) const {
    return values_[id.index].fingerprints;
  }
  bool has_any(PlannedId id) const { return !tensors(id).empty() || !fingerprints(id).empty(); }
  // Divided by its scale. Null where it means nothing that we know.
  const Meaning *meaning(PlannedId id);
  // Zeros of the form that a value has; none: it means nothing that we know.
  std::optional<Meaning> zero_of(PlannedId id);
  // The axes on which a value is a list; none: it means nothing that we know.
  std::optional<ir::AxisSet> per_rank_axes(PlannedId id);

  // --- where each rank is a process

  bool by_fingerprints() const { return exchange_.has_value(); }
  uint64_t key() const { return exchange_->key(); } // of the weights of sums
  // On the rank that judges those of all ranks, of each value that was not exchanged before.
  llvm::Error exchange_fingerprints(llvm::ArrayRef<PlannedId> ids);
  // True if all ranks hold what they were given of an input, which is made once more, here.
  bool is_as_given(PlannedId id);
  // Of the other ranks: sends data until nothing more is asked for.
  llvm::Error answer();
  // Of the rank that judges.
  llvm::Error ask_for_nothing_more();
  // Data of other ranks cannot be had: nothing more is judged, and the run ends with this.
  void fail(llvm::Error error) { failure_ = llvm::toString(std::move(error)); }
  bool has_failed() const { return !failure_.empty(); }

private:
  struct Entry {
    std::vector<Tensor> tensors;
    std::vector<Fingerprint> fingerprints; // in place of the data
    std::optional<Meaning> meaning;        // divided by its scale; none: its scale has no value
    uint32_t last_use = 0;                 // execution
  };

  const Meaning *meaning(PlannedId id, llvm::ArrayRef<const Tensor *> held,
                         llvm::ArrayRef<Dims> dims);
  std::optional<Distribution> distribution_of(PlannedId id, llvm::ArrayRef<Dims> held);
  std::vector<Dims> extents(PlannedId id) const;

  const RunSetup &setup_;
  RunReport &report_;
  std::vector<Entry> values_;                  // by PlannedId
  llvm::DenseMap<uint32_t, PlannedId> latest_; // by ValueId
  llvm::DenseSet<uint32_t> wanted_;            // by PlannedId: what is read where steps are drawn
  std::optional<ValueExchange> exchange_;      // for inputs and outputs
  llvm::DenseSet<uint32_t> exchanged_; // by PlannedId: of which ranks have sent fingerprints
  std::string failure_;
};

} // namespace spmd::runtime
